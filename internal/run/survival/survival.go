// Package survival carries data over the end of a cluster: it decides with which a cluster is born, and saves
// them before its end. What the data are is the matter of their type (package survivor).
package survival

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/survivor"
)

// Data are those of one survives block, bound to the cluster as it is now.
type Data struct {
	Label    string
	Survivor survivor.Survivor
	RPO      time.Duration // 0: none
}

// Bind binds a survives block of a stage to what is known so far.
func Bind(r *run.Run, s *config.Stage, d *config.Survivor) (Data, error) {
	values, diags := d.Values(s, r.Outputs.Scope(s))
	if diags.HasErrors() {
		return Data{}, diags
	}
	target := r.Outputs.Target()
	if target.Kubeconfig == nil { // the platform has not had its turn in this run
		var err error
		if target, err = r.Cluster.RecordedTarget(); err != nil {
			return Data{}, err
		}
	}
	return bind(r, d.Type, d.Label, target, values)
}

func bind(r *run.Run, t survivor.Type, label string, target gate.Target, v gate.Values) (Data, error) {
	r.Cluster.Masker.Add(v.String("secret_key"))
	bound, err := t.New(t.Name+"."+label, target, v)
	return Data{Label: label, Survivor: bound, RPO: v.Duration("rpo")}, err
}

// Decide decides how data begin, unless that is decided: from the newest save that is complete, or from the
// one with this id, if it is theirs. Without any save they are new. A newest save that cannot be restored is
// refused: castle does not go back further than it has to without being told.
func Decide(ctx context.Context, r *run.Run, s *config.Stage, d *config.Survivor, id string) error {
	st, err := r.Cluster.Dir.Stage(s.Name).LastKnown()
	if err != nil {
		return err
	}
	// Before the stage exists, an earlier decision has had no effect.
	if b, decided := r.Outputs.Births()[d.Label]; decided && (b.Life != "" || st.Exists) {
		if id == "" || b.From != nil && b.From.ID == id {
			return nil
		}
		theirs, err := has(List(ctx, r), d.Label, id)
		if err == nil && theirs {
			err = cluster.Usagef("data %s: they have begun already, and not with %s; to begin anew: %s "+
				"--backup %s", d.Label, id, r.Cluster.Command("recreate"), id)
		}
		return err
	}
	if err := alone(r, s, d); err != nil {
		return err
	}
	data, err := Bind(r, s, d)
	if err != nil {
		return err
	}
	var b *survivor.Birth
	if st.Exists {
		b, err = read(ctx, r, data)
	}
	if err == nil && b == nil {
		b, err = choose(ctx, r, data, id)
	}
	if err != nil {
		return fmt.Errorf("data %s: %w", d.Label, err)
	}
	return r.SetBirth(d.Label, b)
}

// alone refuses a label that two stages have: it is the name of the data in the records of the cluster.
func alone(r *run.Run, s *config.Stage, d *config.Survivor) error {
	for _, other := range r.Cluster.Config.Stages {
		for _, one := range other.Survivors {
			if one != d && one.Label == d.Label {
				return cluster.Usagef("stages %s and %s have data %s: rename one of the survives blocks",
					s.Name, other.Name, d.Label)
			}
		}
	}
	return nil
}

// read returns the birth of an object that lives, as the cluster tells it; nil if there is no such object.
// One that was not saved in the object store begins to be.
func read(ctx context.Context, r *run.Run, data Data) (*survivor.Birth, error) {
	is, err := data.Survivor.Live(ctx)
	if err != nil {
		return nil, fmt.Errorf("castle has no record of how they began, and the cluster does not tell: %w",
			err)
	}
	if is == nil {
		return nil, nil
	}
	b := survivor.Born(r.Cluster.Name(), data.Label, data.Survivor.Path, time.Now())
	text := "they live already, and are saved from now on in " + b.Path
	if is.Birth != "" { // a destroy may have begun
		b.ID, b.Path, b.Frozen = is.Birth, is.Path, true
		text = "castle had no record of how they began; it read from the cluster that they are saved in " +
			b.Path
	}
	if is.From != "" {
		b.From, b.Restored = &survivor.Save{ID: "unknown", Path: is.From}, b.Time
		b.Options = is.Options
	}
	r.Notice(fmt.Sprintf("data %s: %s", data.Label, foreign.OneLine(text)))
	return &b, data.Survivor.Announce(ctx, b)
}

// choose returns a new birth, from a save if there is one.
func choose(ctx context.Context, r *run.Run, data Data, id string) (*survivor.Birth, error) {
	saves, err := data.Survivor.Saves(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(saves, func(s survivor.Save) bool { return s.ID == id })
	other := slices.IndexFunc(saves, func(s survivor.Save) bool {
		return s.Cluster != r.Cluster.Name() || s.Name != data.Label
	})
	switch {
	case other >= 0:
		return nil, cluster.Usagef("%s has saves of %s of cluster %s: each survives block "+
			"needs a path of its own", foreign.OneLine(saves[other].Path), foreign.OneLine(saves[other].Name),
			foreign.OneLine(saves[other].Cluster))
	case id != "" && i < 0:
		if _, err := has(List(ctx, r), data.Label, id); err != nil {
			return nil, err
		}
		r.Notice(fmt.Sprintf("data %s: save %s is of other data, so their newest one counts", data.Label, id))
		id = ""
	}
	if id == "" && len(saves) > 0 {
		i = 0
	}
	b := survivor.Born(r.Cluster.Name(), data.Label, data.Survivor.Path, time.Now())
	text := "no save of them exists, so they begin anew"
	if i >= 0 {
		b.From = &saves[i]
		proof, err := data.Survivor.Prove(ctx, *b.From)
		if err != nil {
			return nil, unusable(r, data, saves[i:], err)
		}
		b.Options = data.Survivor.Options(*b.From, proof.Set, id != "")
		text = fmt.Sprintf("they are restored from %s (%s old)", b.From, age(b.From.Time))
		if proof.Gap != "" && id == "" {
			text += fmt.Sprintf(" and what follows, up to a gap: %s is not there, and what was written from "+
				"there on is lost", proof.Gap)
		}
	}
	r.Notice(fmt.Sprintf("data %s: %s, and are saved in %s", data.Label, text, b.Path))
	return &b, data.Survivor.Announce(ctx, b)
}

// has reports whether the save with an id is of the data with a label. It is an error if no data have it.
func has(all []Listed, label, id string) (bool, error) {
	var unknown []error
	for _, l := range all {
		if slices.ContainsFunc(l.Saves, func(s survivor.Save) bool { return s.ID == id }) {
			return l.Name == label, nil
		}
		if l.Problem != "" {
			unknown = append(unknown, fmt.Errorf("the saves of data %s are unknown: %s", l.Name, l.Problem))
		}
	}
	return false, errors.Join(append(unknown, noSave(id))...)
}

func noSave(id string) error {
	return cluster.Usagef("there is no save %s; castle backup list shows those that there are", id)
}

// unusable refuses a birth, because the first of these saves cannot be restored.
func unusable(r *run.Run, data Data, saves []survivor.Save, reason error) error {
	refused := &run.RefusedError{
		Refused: fmt.Sprintf("the data %s cannot be restored from %s; nothing of them was changed",
			data.Label, saves[0]),
		Reasons: []string{foreign.OneLine(reason.Error())},
		Fix:     "repair the object store, and run the same command again",
	}
	if len(saves) > 1 {
		refused.Fix += fmt.Sprintf("; or lose what is newer, and take the one of %s before: --backup %s",
			age(saves[1].Time), saves[1].ID)
	}
	return refused
}

func age(at time.Time) string { return time.Since(at).Round(time.Second).String() }

// Begin prepares the data of a stage that is about to be applied, in a cluster that answers. A birth belongs
// to one life of the cluster: castle decides anew in another one. What an unfinished destroy has frozen may
// be written again. What the data's system does not restore itself is restored.
func Begin(ctx context.Context, r *run.Run, s *config.Stage) error {
	if len(s.Survivors) == 0 {
		return nil
	}
	life, err := kube.Life(ctx, r.Outputs.Target())
	if err != nil {
		return err
	}
	young := false
	for _, d := range s.Survivors {
		b, decided := r.Outputs.Births()[d.Label]
		if decided && b.Life != "" && b.Life != life {
			r.Notice(fmt.Sprintf("data %s: the cluster in which they began has ended", d.Label))
			if err := r.SetBirth(d.Label, nil); err != nil {
				return err
			}
			decided = false
		}
		if !decided {
			if err := Decide(ctx, r, s, d, ""); err != nil {
				return err
			}
		}
		if b = r.Outputs.Births()[d.Label]; b.Life == "" || b.Frozen {
			if err := settle(ctx, r, s, d); err != nil {
				return fmt.Errorf("data %s: %w", d.Label, err)
			}
			b = r.Outputs.Births()[d.Label]
		}
		if b.Life = life; b != r.Outputs.Births()[d.Label] {
			if err := r.SetBirth(d.Label, &b); err != nil {
				return err
			}
		}
		if young = young || b.Restored.IsZero(); b.From != nil && b.Restored.IsZero() {
			data, err := Bind(r, s, d)
			if err == nil {
				err = restore(ctx, r, data, b)
			}
			if err != nil {
				return fmt.Errorf("data %s: %w", d.Label, err)
			}
		}
	}
	if young { // an unfinished destroy may have suspended Flux, which must not be faster than the restore
		return kube.ResumeFlux(ctx, r.Outputs.Target())
	}
	return nil
}

// restore makes what has to be there before the stage is applied.
func restore(ctx context.Context, r *run.Run, data Data, b survivor.Birth) error {
	return data.Survivor.Restore(ctx, b, func(text string) {
		r.Notice(fmt.Sprintf("data %s: %s", data.Label, foreign.OneLine(text)))
	})
}

// Find returns an error unless data of the cluster have a save with an id that can be restored.
func Find(ctx context.Context, r *run.Run, id string) error {
	for _, p := range Verify(ctx, r, id) {
		if p.Save != nil && p.Problem == "" {
			return nil
		}
		if p.Problem != "" {
			return cluster.Usagef("data %s: save %s: %s", p.Name, id, p.Problem)
		}
	}
	return noSave(id)
}

// settle brings a birth and its object together. An object that lives although the state of its stage is lost
// keeps its own: another birth would have its data deleted. What an unfinished destroy has ended is permitted
// again; if it has deleted the object, the data are born again.
func settle(ctx context.Context, r *run.Run, s *config.Stage, d *config.Survivor) error {
	data, err := Bind(r, s, d)
	if err != nil {
		return err
	}
	is, err := data.Survivor.Live(ctx)
	if b := r.Outputs.Births()[d.Label]; err == nil && b.Life == "" && is != nil && is.Birth != b.ID {
		var own *survivor.Birth
		if own, err = read(ctx, r, data); err == nil {
			err = r.SetBirth(d.Label, own)
		}
	}
	if err != nil {
		return err
	}
	b := r.Outputs.Births()[d.Label]
	switch {
	case b.Frozen && b.Saved != nil && is == nil:
		if err := r.SetBirth(d.Label, nil); err != nil {
			return err
		}
		return Decide(ctx, r, s, d, "")
	case b.Frozen:
		if b.Saved != nil { // the destroy may have deleted a part
			whole := b
			whole.From = b.Saved
			if err := restore(ctx, r, data, whole); err != nil {
				return err
			}
		}
		return thaw(ctx, r, data, r.Outputs.Target())
	}
	return nil
}

// First saves the data of a stage that has just become ready, unless this birth has a save: from then on,
// they can be restored. As a gate does, it waits for an object store that is away, and not for the upload.
func First(ctx context.Context, r *run.Run, s *config.Stage) error {
	for _, d := range s.Survivors {
		data, err := Bind(r, s, d)
		if err != nil {
			return err
		}
		var saves []survivor.Save
		answers := gate.Gate{Name: "data." + d.Label, Check: func(ctx context.Context) (err error) {
			saves, err = data.Survivor.Saves(ctx)
			return err
		}}
		tell := func(waits error) {
			if waits != nil {
				r.Notice("data " + d.Label + ": the first save waits: " + foreign.OneLine(waits.Error()))
			}
		}
		if err = gate.Wait(ctx, answers, gate.Policy{}, gate.Listener{Answer: tell}); err == nil {
			err = new(Taken).take(ctx, r, data, saves, math.MaxInt64)
		}
		if err != nil {
			return fmt.Errorf("data %s: the first save: %w", d.Label, err)
		}
	}
	return nil
}

// Age is how old the newest save of data is. Without a Save there is none, or Problem says why it is unknown.
type Age struct {
	Name    string         `json:"name"`
	Save    *survivor.Save `json:"save,omitempty"`
	RPO     string         `json:"rpo,omitempty"` // the oldest that it may be
	Overdue bool           `json:"overdue"`
	Frozen  bool           `json:"frozen"` // an unfinished destroy has ended all writes
	Problem string         `json:"problem,omitempty"`
}

// Ages looks for the newest saves of all data of the cluster, and proves none of them.
func Ages(ctx context.Context, r *run.Run) []Age {
	return eachSaves(ctx, r, func(data Data, saves []survivor.Save, err error) Age {
		a := Age{Name: data.Label, Frozen: r.Outputs.Births()[data.Label].Frozen, Overdue: data.RPO > 0}
		if data.RPO > 0 {
			a.RPO = data.RPO.String()
		}
		if err != nil {
			a.Problem = foreign.OneLine(err.Error())
		} else if i := slices.IndexFunc(saves, survivor.Save.Proved); i >= 0 {
			a.Save, a.Overdue = &saves[i], data.RPO > 0 && time.Since(saves[i].Time) > data.RPO
		}
		return a
	})
}

// Listed are the saves of data, the newest first.
type Listed struct {
	Name    string          `json:"name"`
	Saves   []survivor.Save `json:"saves"`
	Problem string          `json:"problem,omitempty"` // why castle could not list them
}

// List lists the saves of all data of the cluster.
func List(ctx context.Context, r *run.Run) []Listed {
	return eachSaves(ctx, r, func(data Data, saves []survivor.Save, err error) Listed {
		l := Listed{Name: data.Label, Saves: append([]survivor.Save{}, saves...)}
		if err != nil {
			l.Problem = foreign.OneLine(err.Error())
		}
		return l
	})
}

// Proof is the result of reading a save in the object store.
type Proof struct {
	Name    string         `json:"name"`
	Save    *survivor.Save `json:"save,omitempty"` // nil: there is none
	Problem string         `json:"problem,omitempty"`
}

// Verify reads the save with an id, or the newest one of all data, in the object store.
func Verify(ctx context.Context, r *run.Run, id string) []Proof {
	return eachSaves(ctx, r, func(data Data, saves []survivor.Save, err error) Proof {
		p := Proof{Name: data.Label}
		chosen := func(s survivor.Save) bool { return id == "" || s.ID == id }
		if i := slices.IndexFunc(saves, chosen); err == nil && i >= 0 {
			p.Save = &saves[i]
			_, err = data.Survivor.Prove(ctx, saves[i])
		}
		if err != nil {
			p.Problem = foreign.OneLine(err.Error())
		}
		return p
	})
}

// eachSaves calls do for the data of each survives block and their saves, or why they are not known.
func eachSaves[T any](ctx context.Context, r *run.Run, do func(Data, []survivor.Save, error) T) []T {
	return each(r, func(data Data, err error) T {
		var saves []survivor.Save
		if err == nil {
			saves, err = data.Survivor.Saves(ctx)
		}
		return do(data, saves, err)
	})
}

// each calls do for the data of each survives block, or with the reason why they are not known.
func each[T any](r *run.Run, do func(Data, error) T) []T {
	var all []func() T
	for _, s := range r.Cluster.Config.Stages {
		for _, d := range s.Survivors {
			data, err := Bind(r, s, d)
			data.Label = d.Label
			all = append(all, func() T { return do(data, err) })
		}
	}
	return run.Each(all, func(one func() T) T { return one() })
}

// Taken is the save of data that a backup took, or the newest one where that was young enough.
type Taken struct {
	Name  string         `json:"name"`
	Save  *survivor.Save `json:"save"`
	Taken bool           `json:"taken"`
}

// Take saves all data of the cluster while applications write to them, except those whose newest save is
// younger than ifOlderThan.
func Take(ctx context.Context, r *run.Run, ifOlderThan time.Duration) ([]Taken, error) {
	type outcome struct {
		taken Taken
		err   error
	}
	all, errs := []Taken{}, []error{}
	for _, o := range eachSaves(ctx, r, func(data Data, saves []survivor.Save, err error) outcome {
		t := Taken{Name: data.Label}
		if err == nil {
			err = t.take(ctx, r, data, saves, ifOlderThan)
		}
		if err != nil {
			err = fmt.Errorf("data %s cannot be saved: %w", data.Label, err)
		}
		return outcome{t, err}
	}) {
		if errs = append(errs, o.err); o.err == nil {
			all = append(all, o.taken)
		}
	}
	return all, errors.Join(errs...)
}

func (t *Taken) take(ctx context.Context, r *run.Run, data Data, saves []survivor.Save,
	ifOlderThan time.Duration) (err error) {
	b, decided := r.Outputs.Births()[data.Label]
	if !decided {
		return cluster.Usagef("it is not decided how they begin; create the cluster first: %s",
			r.Cluster.Command("create"))
	}
	young := func(s survivor.Save) bool {
		return s.Birth == b.ID && s.Proved() && time.Since(s.Time) < ifOlderThan
	}
	if i := slices.IndexFunc(saves, young); i >= 0 {
		t.Save = &saves[i]
		return nil
	}
	t.Save, err = data.Survivor.Save(ctx, b, false)
	t.Taken = err == nil
	return err
}

// names lists labels within a sentence.
func names(all []Data) string {
	return strings.Join(xslices.Map(all, func(d Data) string { return d.Label }), ", ")
}
