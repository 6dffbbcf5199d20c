package random

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/big"

	"github.com/zclconf/go-cty/cty"
	"golang.org/x/crypto/bcrypt"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

const specials = "!@#$%&*()-_=+[]{}<>:?"

// bcryptLongest is the number of bytes of a password that bcrypt reads.
const bcryptLongest = 72

func password() plugin.Resource {
	flag := plugin.Attribute{Type: cty.Bool, Optional: true, Computed: true, Default: cty.True, Replace: true}
	// number is the old name of numeric: each defaults to the other, in planNumeric.
	numeric := plugin.Attribute{Type: cty.Bool, Optional: true, Computed: true, Keep: true, Replace: true}
	number := numeric
	number.Deprecated = true
	least := plugin.Attribute{Type: cty.Number, Optional: true, Computed: true, Default: cty.Zero,
		Replace: true}
	return plugin.Resource{
		Version: 3,
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"keepers":          {Type: cty.Map(cty.String), Optional: true, Replace: true},
			"length":           {Type: cty.Number, Required: true, Replace: true, Valid: positive},
			"special":          flag,
			"upper":            flag,
			"lower":            flag,
			"numeric":          numeric,
			"number":           number,
			"min_numeric":      least,
			"min_upper":        least,
			"min_lower":        least,
			"min_special":      least,
			"override_special": {Type: cty.String, Optional: true, Replace: true},
			"result":           {Type: cty.String, Computed: true, Sensitive: true, Keep: true},
			"bcrypt_hash":      {Type: cty.String, Computed: true, Sensitive: true, Keep: true},
			"id":               {Type: cty.String, Computed: true, Keep: true},
		}},
		Check:  checkPassword,
		Plan:   planNumeric,
		Create: createPassword,
		// Only the deprecated twin of an attribute changes without Replace; there is nothing to do.
		Update: func(context.Context, plugin.Change) (plugin.Values, error) { return plugin.Values{}, nil },
	}
}

func positive(x cty.Value) error {
	if x.LessThan(cty.NumberIntVal(1)).True() {
		return &plugin.Problem{Summary: "Invalid Attribute Value",
			Detail: "Attribute length value must be at least 1, got: " + x.AsBigFloat().Text('f', -1)}
	}
	return nil
}

func checkPassword(config plugin.Values) error {
	if !config.Known("length") {
		return nil
	}
	sum := int64(0)
	for _, name := range []string{"min_numeric", "min_upper", "min_lower", "min_special"} {
		sum += config.Int(name)
	}
	if config.Int("length") < sum {
		return &plugin.Problem{Summary: "Invalid Attribute Value", Detail: fmt.Sprintf(
			"Attribute length value must be at least sum of min_upper, min_lower, min_numeric and "+
				"min_special (%d), got: %d", sum, config.Int("length"))}
	}
	return nil
}

func planNumeric(_ context.Context, p *plugin.Plan) error {
	value := cty.True
	for _, name := range []string{"number", "numeric"} {
		if !p.Change.Config[name].IsNull() {
			value = p.Change.Config[name]
		}
	}
	p.Change.Planned["numeric"], p.Change.Planned["number"] = value, value
	return nil
}

func createPassword(_ context.Context, c plugin.Change) (plugin.Values, error) {
	result, err := generate(c.Planned)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Create Random Password Error", Detail: err.Error()}
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(result[:min(len(result), bcryptLongest)]),
		bcrypt.DefaultCost)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Hash Generation Error", Detail: err.Error()}
	}
	return plugin.Values{
		"id": cty.StringVal("none"), "result": cty.StringVal(result),
		"bcrypt_hash": cty.StringVal(string(hash)),
	}, nil
}

// generate takes the least of each class first, fills up from all classes, and
// puts everything in random order.
func generate(v plugin.Values) (string, error) {
	special := specials
	if v.Known("override_special") {
		special = v.String("override_special")
	}
	classes := []struct{ use, least, characters string }{
		{"upper", "min_upper", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
		{"lower", "min_lower", "abcdefghijklmnopqrstuvwxyz"},
		{"numeric", "min_numeric", "0123456789"},
		{"special", "min_special", special},
	}
	var all string
	var result []byte
	for _, class := range classes {
		if v.Bool(class.use) {
			all += class.characters
		}
		for range v.Int(class.least) {
			if class.characters == "" {
				return "", fmt.Errorf("%s asks for characters of an empty set", class.least)
			}
			result = append(result, class.characters[below(len(class.characters))])
		}
	}
	if all == "" {
		return "", fmt.Errorf("the character set specified is empty")
	}
	for int64(len(result)) < v.Int("length") {
		result = append(result, all[below(len(all))])
	}
	for i := len(result) - 1; i > 0; i-- {
		j := below(i + 1)
		result[i], result[j] = result[j], result[i]
	}
	return string(result), nil
}

func below(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		panic(err) // the kernel has no randomness: crypto/rand itself gives up here
	}
	return int(i.Int64())
}
