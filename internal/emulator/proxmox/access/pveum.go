package access

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Pveum runs a command of pveum, the node's tool for users and access, and returns what it prints: the secret
// of a new token. It has the commands with which an administrator limits a token, and addPool for those of
// pools. A value has no spaces, so quotes have no meaning.
func (a *Control) Pveum(command string, addPool func(pool string)) (string, error) {
	words, options := []string{}, map[string]string{}
	fields := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(command))
	for i := 0; i < len(fields); i++ {
		if name := strings.TrimLeft(fields[i], "-"); name == fields[i] {
			words = append(words, name)
		} else if i++; i < len(fields) {
			options[name] = fields[i]
		}
	}
	if len(words) < 3 || words[0] != "pveum" {
		return "", fmt.Errorf("%q is no command of pveum", command)
	}
	last := words[len(words)-1]
	words = words[1:]
	switch strings.Join(words[:len(words)-1], " ") {
	case "pool add":
		addPool(last)
	case "role add", "role modify":
		a.roles[last] = listOf(options["privs"])
		for _, p := range a.roles[last] {
			if !slices.Contains(a.roles[administrator], p) {
				return "", fmt.Errorf("pveum: invalid privilege '%s'", p)
			}
		}
	case "user add":
		a.users[last] = true
	case "acl modify", "acl delete":
		return "", a.modify(words[1], last, options)
	default:
		if len(words) != 5 || strings.Join(words[:3], " ") != "user token add" {
			return "", fmt.Errorf("pveum: unknown command %q", command)
		}
		if !a.users[words[3]] {
			return "", fmt.Errorf("pveum: user '%s' does not exist", words[3])
		}
		token := apiToken{secret: uuid.NewString(), separate: options["privsep"] != "0"}
		token.expire, _ = strconv.ParseInt(options["expire"], 10, 64) //nolint:errcheck // absent: never
		a.tokens[words[3]+"!"+last] = token
		return token.secret, nil
	}
	return "", nil
}

// modify adds the roles of users and tokens on a path, or deletes them.
func (a *Control) modify(verb, path string, options map[string]string) error {
	for _, who := range append(listOf(options["users"]), listOf(options["tokens"])...) {
		_, isToken := a.tokens[who]
		if !isToken && !a.users[who] {
			return fmt.Errorf("pveum: no user or token '%s'", who)
		}
		for _, role := range listOf(options["roles"]) {
			if _, known := a.roles[role]; !known {
				return fmt.Errorf("pveum: role '%s' does not exist", role)
			}
			a.acl = slices.DeleteFunc(a.acl, func(g grant) bool {
				return g.path == path && g.who == who && g.role == role
			})
			if verb == "modify" {
				a.acl = append(a.acl, grant{path, who, role, options["propagate"] != "0"})
			}
		}
	}
	return nil
}

// listOf splits the value of an option.
func listOf(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
}
