package scaffold

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Question is a question of an interview.
type Question struct {
	Number, Of int
	Text, Why  string
	Proposal   string // the user's earlier answer or castle's proposal, which an empty answer takes; or empty
	Problem    string // why the last answer was refused, or why there is a question at all; or empty
}

// Ask asks the user a question and returns the answer, one line.
type Ask func(Question) (string, error)

// Back is the answer that goes back to the previous question.
const Back = "<"

// interview asks for the answers of a cluster. It recomputes all answers before each question, because a
// changed answer changes the proposals and the validity of later ones.
type interview struct {
	c        *NewCluster
	given    map[string]string // never asked for, unless they are invalid
	typed    map[string]string
	accepted map[string]bool // by key; not after the user went back to the question
}

// Interview answers every key: from given, from ask, or with castle's proposal for those that hardly anybody
// changes. It begins after the questions that kept answers, at the last one if all are answered. keep stores
// all answers so far, after each one.
func (c *NewCluster) Interview(given, kept map[string]string, ask Ask,
	keep func(answers map[string]string) error) error {
	wrong := c.unknown(given)
	for _, k := range c.keys {
		store, chosen := given["secrets"]
		if _, is := given[k.name]; is && chosen && k.store != "" && k.store != store {
			wrong = append(wrong, c.unused(k))
		}
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	i := &interview{c, maps.Clone(given), maps.Clone(kept), map[string]bool{}}
	for name := range kept {
		i.accepted[name] = true
	}
	problem, asked := "", false
	for {
		k, before, unfit, err := i.next()
		last := len(before) - 1
		switch {
		case err != nil:
			return err
		case k == nil && !asked && last >= 0:
			i.accepted[before[last].name], asked = false, true
			continue
		case k == nil:
			return nil
		}
		q := Question{Number: len(before) + 1, Of: i.questions(), Text: k.question, Why: k.why,
			Proposal: i.proposal(k), Problem: cmp.Or(problem, unfit)}
		if q.Proposal == "" {
			q.Text += k.more
		}
		text, err := ask(q)
		problem, asked = "", true
		switch {
		case err != nil:
			return err
		case text == Back && last < 0:
			problem = "this is the first question"
		case text == Back:
			i.accepted[before[last].name] = false
		default:
			text = cmp.Or(text, q.Proposal)
			if err := c.answer(k, text); err != nil {
				problem = err.Error()
				continue
			}
			i.typed[k.name], i.accepted[k.name] = text, true
			if err := keep(i.answers()); err != nil {
				return err
			}
		}
	}
}

// next recomputes the answers up to the first question that has none, nil if all have one. It returns the
// questions before it as well, and why an earlier or given answer is invalid now.
func (i *interview) next() (k *key, before []*key, problem string, err error) {
	i.c.answers.values = map[string]any{}
	for _, k := range i.c.keys {
		text, given := i.given[k.name]
		switch {
		case !i.c.uses(k):
			if given {
				return nil, nil, "", i.c.unused(k)
			}
			continue
		case given:
		case k.quiet:
			text = i.c.propose(k)
		case !i.accepted[k.name]:
			return k, before, "", nil
		default:
			text = i.typed[k.name]
		}
		if err := i.c.answer(k, text); err != nil {
			delete(i.given, k.name)
			return k, before, err.Error(), nil
		}
		if !given && !k.quiet {
			before = append(before, k)
		}
	}
	return nil, before, "", nil
}

// proposal returns the user's earlier answer to a question, castle's proposal if that is invalid now.
func (i *interview) proposal(k *key) string {
	defer delete(i.c.answers.values, k.name)
	if text := i.typed[k.name]; text != "" && i.c.answer(k, text) == nil {
		return text
	}
	return i.c.propose(k)
}

// store returns the answer for the store of the secrets, its proposal as long as there is none.
func (i *interview) store() string {
	return cmp.Or(i.given["secrets"], i.typed["secrets"], "infisical")
}

// questions counts the questions with the answers so far.
func (i *interview) questions() (n int) {
	for _, k := range i.c.keys {
		if _, given := i.given[k.name]; !given && !k.quiet && (k.store == "" || k.store == i.store()) {
			n++
		}
	}
	return n
}

// answers returns all answers that the cluster needs, given ones included.
func (i *interview) answers() map[string]string {
	all := map[string]string{}
	for _, k := range i.c.keys {
		if text := cmp.Or(i.given[k.name], i.typed[k.name]); text != "" &&
			(k.store == "" || k.store == i.store()) {
			all[k.name] = text
		}
	}
	return all
}

// KeepAnswers writes a file for castle new --answers, which only its owner can read.
func KeepAnswers(path, label string, answers map[string]string) error {
	f := hclwrite.NewEmptyFile()
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		f.Body().SetAttributeValue(name, cty.StringVal(answers[name]))
	}
	text := "# Answers for castle new " + label + ", not yet complete.\n"
	return atomicfile.WriteMode(path, append([]byte(text), hclwrite.Format(f.Bytes())...), 0o600)
}
