package secret_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/diagnose"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/ui"
)

// TestNoWriterShowsASecret plants 10,000 random secrets in everything that a run prints and keeps.
func TestNoWriterShowsASecret(t *testing.T) {
	const rounds = 5
	terraformThatFails(t)
	for seed := range uint64(rounds) {
		plantRound(t, rand.New(rand.NewPCG(seed, 0)), 10_000/rounds)
	}
}

// FuzzWriters does the same with other secrets, encodings and places.
func FuzzWriters(f *testing.F) {
	terraformThatFails(f)
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { plantRound(t, rand.New(rand.NewPCG(seed, 1)), 20) })
}

// terraformThatFails puts a Terraform on PATH that prints the file planted of its work directory and fails.
func terraformThatFails(t testing.TB) {
	bin := t.TempDir()
	script := "#!/bin/sh\ncase $* in 'version -json') echo '{\"terraform_version\":\"1.14.0\"}';; " +
		"version) echo Terraform v1.14.0;; *) cat planted; cat planted.errors >&2; exit 1;; esac\n"
	if err := os.WriteFile(filepath.Join(bin, "terraform"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// planting is a secret, as it is and in one of its encodings, and a text that holds the latter.
type planting struct {
	value, form, text string
	cut               bool // only a part of it is in the text, beside an ellipsis
}

// plant makes a secret of one line or, seldom, of several.
func plant(r *rand.Rand) planting {
	value := random(r)
	for range r.IntN(8) / 7 * 4 {
		value += "\n" + random(r)
	}
	encodings := slices.Sorted(maps.Keys(printed))
	encoding := encodings[r.IntN(len(encodings))]
	form := printed[encoding](value)
	frames := []string{"%s", "'%s'", "password=%s;", "https://user:%s@host/", `module.a["%s"].b`,
		"Basic %s\nmore", "{\"a\":\"%s\"}", "\t%s\n", "%s=1"}
	frame := frames[r.IntN(len(frames))]
	cut := encoding == cutAtItsEnd || encoding == cutAtItsTop
	if cut {
		frame = map[string]string{cutAtItsEnd: "%s…", cutAtItsTop: "… %s"}[encoding]
	}
	filler := strings.Repeat("lorem ipsum ", r.IntN(36)*(r.IntN(4)/3)) // so that texts are cut anywhere
	return planting{value, form, filler + strings.Replace(frame, "%s", form, 1) + " dolor", cut}
}

// random makes one line of a secret, with all that encoders and quoters care for.
func random(r *rand.Rand) string {
	alphabet := []rune("abcdefghijklmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789+/=-_.  &<>\"'$`%\\äß€")
	for {
		var b strings.Builder
		for range 14 + r.IntN(30) {
			b.WriteRune(alphabet[r.IntN(len(alphabet))])
		}
		if distinct(b.String()) && len(squeeze(b.String())) > left {
			return b.String()
		}
	}
}

// wrapped breaks a text at spaces, as Terraform does.
func wrapped(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.SplitAfter(text, " ") {
		if column += len(word); column > 78 {
			b.WriteByte('\n')
			column = len(word)
		}
		b.WriteString(word)
	}
	return b.String()
}

type reporters []cluster.Reporter

func (all reporters) Report(e event.Event) {
	for _, r := range all {
		r.Report(e)
	}
}

// plantRound plants secrets in a run of castle, and looks for them in all that it printed and kept.
func plantRound(t *testing.T, r *rand.Rand, secrets int) {
	t.Helper()
	m, root := &secret.Masker{}, t.TempDir()
	var all []planting
	for range secrets {
		p := plant(r)
		m.Add(p.value)
		all = append(all, p)
	}
	check := func(err error) {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := state.Open(root, "blue", "lab")
	check(err)
	printed := map[string]*bytes.Buffer{}
	for _, name := range []string{"terminal", "lines", "JSON", "timeline", "errors", "stream"} {
		printed[name] = &bytes.Buffer{}
	}
	terminal := ui.NewLines(printed["terminal"], ui.Options{View: true, Colour: true, Verbose: true})
	c := &cluster.Cluster{
		Options: cluster.Options{Environ: os.Environ(), Reporter: reporters{terminal,
			ui.NewLines(printed["lines"], ui.Options{Verbose: true}), ui.NewJSON(printed["JSON"])}},
		Config: &config.Cluster{Name: "blue", Platform: "lab"}, Dir: dir, Masker: m,
	}
	_, ran, err := run.Begin(t.Context(), c, "create", applied.CleanUp)
	check(err)
	work, err := ran.OpenWorkspace("box", "platform")
	check(err)
	check(os.MkdirAll(work.Root.Dir, 0o700))

	next := 0
	text := func() string { next++; return all[next%len(all)].text }
	// Nobody shortens the lines of a stream.
	whole := slices.DeleteFunc(slices.Clone(all), func(p planting) bool { return p.cut })
	var errs []error
	for i := range 4 { // Terraform in JSON, in text, and with a text that is cut at its last line
		errs = append(errs, planFails(t, ran, work, jsonOutput(all[i*len(all)/4:(i+1)*len(all)/4]), ""))
		for _, p := range whole[i*len(whole)/4:][:2] {
			errs = append(errs, planFails(t, ran, work, "", wrapped("\nError: "+p.text+"\n\n"+p.text)),
				planFails(t, ran, work, wrapped(p.text)+"\n", ""))
		}
	}
	for range len(all) / 4 {
		errs = append(errs, c.MaskError(errors.New(text())))
	}
	for range len(all) / 16 {
		errs = append(errs, c.MaskError(reviewErrors(text)))
	}
	emitAll(ran, len(all)/16, text)
	stream := m.Writer(printed["stream"])
	for rest := wrapped(joined(whole)); rest != ""; {
		n := min(len(rest), 1+r.IntN(200))
		_, err := stream.Write([]byte(rest[:n]))
		check(err)
		rest = rest[n:]
	}
	check(errors.Join(stream.Close(), work.Close()))
	fmt.Fprintln(printed["errors"], ran.End(errors.Join(errs...)))
	terminal.Timeline(printed["timeline"])
	check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == "work" {
			return cmp.Or(err, fs.SkipDir)
		}
		if d.Type().IsRegular() {
			content, err := os.ReadFile(path)
			printed[path] = bytes.NewBuffer(content)
			return err
		}
		return nil
	}))
	findLeft(t, all, printed)
}

func joined(all []planting) string {
	var b strings.Builder
	for _, p := range all {
		b.WriteString(p.text + "\n")
	}
	return b.String()
}

// jsonOutput is Terraform's stream with a log line and an error for each planting.
func jsonOutput(all []planting) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for i, p := range all {
		d := map[string]any{"severity": "error", "summary": "It failed", "detail": p.text}
		if i%2 == 1 {
			d["summary"], d["address"] = p.text, "module.a[\""+p.text+"\"]"
		}
		for _, m := range []map[string]any{
			{"@message": p.text, "type": "log"}, {"@message": "x", "type": "diagnostic", "diagnostic": d},
		} {
			if err := e.Encode(m); err != nil {
				panic(err)
			}
		}
	}
	return b.String()
}

// planFails has Terraform print these texts and fail, and returns the error as create would.
func planFails(t *testing.T, r *run.Run, work *run.Workspace, stdout, stderr string) error {
	t.Helper()
	for name, text := range map[string]string{"planted": stdout, "planted.errors": stderr} {
		if err := os.WriteFile(filepath.Join(work.Root.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := work.Root.Plan(t.Context(), terraform.PlanOptions{})
	if err == nil {
		t.Fatal("Terraform has not failed")
	}
	err = diagnose.Explain(t.Context(), r, diagnose.Subject{Layer: "platform", Name: "box"},
		run.During("plan", err))
	return r.Failed(t.Context(), "platform", "box", err)
}

// reviewErrors are those about saved plans and confirmations, which summarize changes.
func reviewErrors(text func() string) error {
	change := review.Change{Address: text(), Action: "replace", Reason: "cannot_update",
		Attributes: []string{text()}}
	return errors.Join(&review.UnagreedError{Loss: review.Loss{Changes: []review.Change{change}}},
		&review.UnreviewedError{File: "blue.castleplan", Changes: []review.Change{change}, Fix: text()},
		&review.StaleError{File: "blue.castleplan", Moved: []string{text()}, Again: text()})
}

// emitAll sends events of all kinds with planted texts, most of them of kinds that need no flush to disk.
func emitAll(r *run.Run, times int, text func() string) {
	for _, kind := range []event.Kind{
		event.Reviewed, event.StageStarted, event.Retry, event.StageFailed, event.StageSkipped,
	} {
		r.Emit(event.Event{Kind: kind, Layer: "platform", Stage: "box", Text: text()})
	}
	for range times {
		for _, kind := range []event.Kind{event.Resource, event.GateClosed, event.GateFailed,
			event.Notice} {
			r.Emit(event.Event{Kind: kind, Layer: "platform", Stage: "box", Gate: "a", Action: "import",
				Address: text(), Text: text(), Seconds: 2})
		}
		r.Emit(event.Event{Kind: event.Waiting, Text: text(), Interruption: &event.Interruption{
			Operations: []event.Operation{{Command: "apply", Address: text()}}}})
	}
	for range 1 + times/10 {
		r.Emit(event.Event{Kind: event.Diagnosed, Stage: "box", Diagnosis: &event.Diagnosis{
			Waited: text(), Seen: text(), Cause: text(), Next: text(), Since: time.Now()}})
		r.Emit(event.Event{Kind: event.Receipted, Text: text(), Receipt: &event.Receipt{
			Objects:    []event.OwnedObject{{ID: text(), Where: text(), Reason: text(), Fix: text()}},
			Unverified: []string{text()}}})
	}
}

// findLeft fails for each planting of which more than left characters in a row are in an output.
func findLeft(t *testing.T, all []planting, outputs map[string]*bytes.Buffer) {
	t.Helper()
	parts := map[string]planting{}
	for _, p := range all {
		for _, form := range []string{p.value, p.form, toJSON(p.value),
			toJSON(strings.ToValidUTF8(p.form, ""))} {
			form = squeeze(form)
			for i := 0; i+left < len(form); i++ {
				parts[form[i:i+left+1]] = p
			}
		}
	}
	for name, output := range outputs {
		if output.Len() == 0 && filepath.Base(name) != "lock" {
			t.Errorf("%s: nothing was written", name)
		}
		text := squeeze(strings.ReplaceAll(output.String(), secret.Mask, "\x00"))
		for i := 0; i+left < len(text); i++ {
			if p, found := parts[text[i:i+left+1]]; found {
				t.Errorf("%s: %q of %q is left: %s", name, p.form, p.value,
					text[max(0, i-60):min(len(text), i+80)])
				break
			}
		}
	}
}
