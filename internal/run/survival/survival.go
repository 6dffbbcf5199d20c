// Package survival carries data over the end of a cluster: it decides with which a cluster is born, and saves
// them before its end. What the data are is the matter of their type (package survivor).
package survival

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/ownfile"
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
	return bind(r, d.Type, d.Label, r.Outputs.Target(), values)
}

func bind(r *run.Run, t survivor.Type, label string, target gate.Target, v gate.Values) (Data, error) {
	r.Cluster.Masker.Add(v.String("secret_key"))
	bound, err := t.New(t.Name+"."+label, target, v)
	return Data{Label: label, Survivor: bound, RPO: v.Duration("rpo")}, err
}

// Decide decides how data begin, unless that is decided: from the newest save that is complete, or from the
// one with this id. Without any save they are new. A newest save that cannot be restored is refused: castle
// does not go back further than it has to without being told.
func Decide(ctx context.Context, r *run.Run, s *config.Stage, d *config.Survivor, id string) error {
	st, err := r.Cluster.Dir.Stage(s.Name).LastKnown()
	if err != nil {
		return err
	}
	// Before the stage exists, an earlier decision has had no effect.
	if b, decided := r.Outputs.Births()[d.Label]; decided && (b.Life != "" || st.Exists) {
		if id != "" && (b.From == nil || b.From.ID != id) {
			return cluster.Usagef("data %s: they have begun already, and not with %s; to begin anew: %s "+
				"--backup %s", d.Label, id, r.Cluster.Command("recreate"), id)
		}
		return nil
	}
	values, diags := d.Values(s, r.Outputs.Scope(s))
	if diags.HasErrors() {
		return diags
	}
	target := r.Outputs.Target()
	if target.Kubeconfig == nil { // the platform has not had its turn; an existing one has written this
		recorded, err := ownfile.ReadFile(r.Cluster.Dir.Kubeconfig())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		target.Kubeconfig = recorded
	}
	data, err := bind(r, d.Type, d.Label, target, values)
	if err != nil {
		return err
	}
	b, err := live(ctx, r, s, data)
	if err == nil && b == nil {
		b, err = choose(ctx, r, data, id)
	}
	if err != nil {
		return fmt.Errorf("data %s: %w", d.Label, err)
	}
	return r.SetBirth(d.Label, b)
}

// live returns the birth of an object that is in the cluster already, although castle has no record of it;
// nil if there is none. A stage that was never applied has none.
func live(ctx context.Context, r *run.Run, s *config.Stage, data Data) (*survivor.Birth, error) {
	if st, err := r.Cluster.Dir.Stage(s.Name).LastKnown(); err != nil || !st.Exists {
		return nil, err
	}
	return read(ctx, r, data)
}

// read returns the birth of an object, as the cluster tells it; nil if there is no such object.
func read(ctx context.Context, r *run.Run, data Data) (*survivor.Birth, error) {
	at, from, err := data.Survivor.Live(ctx)
	if err != nil {
		return nil, fmt.Errorf("castle has no record of how they began, and the cluster does not tell: %w",
			err)
	}
	if at == "" {
		return nil, nil
	}
	b := &survivor.Birth{ID: path.Base(at), Cluster: r.Cluster.Name(), Name: data.Label,
		Time: time.Now().UTC(), Path: at, Frozen: true} // it is not known whether a destroy had begun
	if from != "" {
		b.From, b.Restored = &survivor.Save{ID: "unknown", Path: from}, b.Time
	}
	r.Notice(fmt.Sprintf("data %s: castle had no record of how they began; it read from the cluster that "+
		"they are saved in %s", data.Label, foreign.OneLine(at)))
	return b, data.Survivor.Announce(ctx, *b)
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
			"needs a path of its own", data.Survivor.Base(), foreign.OneLine(saves[other].Name),
			foreign.OneLine(saves[other].Cluster))
	case id != "" && i < 0:
		return nil, cluster.Usagef("there is no save %s; castle backup list shows those that there are", id)
	case id == "" && len(saves) > 0:
		i = 0
	}
	var from *survivor.Save
	var set string
	if i >= 0 {
		from = &saves[i]
		if set, err = data.Survivor.Prove(ctx, *from); err != nil {
			return nil, unusable(r, data, saves[i:], err)
		}
	}
	b := survivor.Born(r.Cluster.Name(), data.Label, data.Survivor.Base(), time.Now())
	b.From = from
	text := "no save of them exists, so they begin anew"
	if from != nil {
		b.Options = data.Survivor.Options(*from, set, id != "")
		text = fmt.Sprintf("they are restored from %s (%s old)", from, age(from.Time))
	}
	r.Notice(fmt.Sprintf("data %s: %s, and are saved in %s", data.Label, text, b.Path))
	return &b, data.Survivor.Announce(ctx, b)
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
// be written again.
func Begin(ctx context.Context, r *run.Run, s *config.Stage) error {
	if len(s.Survivors) == 0 {
		return nil
	}
	life, err := kube.Life(ctx, r.Outputs.Target())
	if err != nil {
		return err
	}
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
		if b = r.Outputs.Births()[d.Label]; b.Life == "" {
			if err := keepLiving(ctx, r, s, d); err != nil {
				return fmt.Errorf("data %s: %w", d.Label, err)
			}
			b = r.Outputs.Births()[d.Label]
		}
		if b.Frozen {
			if err := goOn(ctx, r, s, d); err != nil {
				return fmt.Errorf("data %s: %w", d.Label, err)
			}
			b = r.Outputs.Births()[d.Label]
		}
		if b.Life = life; b != r.Outputs.Births()[d.Label] {
			if err := r.SetBirth(d.Label, &b); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepLiving takes the birth of an object that lives, although the state of its stage is lost: another birth
// would have its data deleted.
func keepLiving(ctx context.Context, r *run.Run, s *config.Stage, d *config.Survivor) error {
	data, err := Bind(r, s, d)
	if err != nil {
		return err
	}
	at, _, err := data.Survivor.Live(ctx)
	if err != nil || at == "" || at == r.Outputs.Births()[d.Label].Path {
		return err
	}
	b, err := read(ctx, r, data)
	if err != nil {
		return err
	}
	return r.SetBirth(d.Label, b)
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
	return cluster.Usagef("there is no save %s; castle backup list shows those that there are", id)
}

// goOn permits what an unfinished destroy has ended. If that has deleted the object, the data are born again.
func goOn(ctx context.Context, r *run.Run, s *config.Stage, d *config.Survivor) error {
	data, err := Bind(r, s, d)
	if err != nil {
		return err
	}
	at, _, err := data.Survivor.Live(ctx)
	if err == nil && at == "" && r.Outputs.Births()[d.Label].Saved != nil {
		if err = kube.ResumeFlux(ctx, r.Outputs.Target()); err == nil {
			err = r.SetBirth(d.Label, nil)
		}
		if err == nil {
			err = Decide(ctx, r, s, d, "")
		}
		return err
	}
	if err != nil {
		return err
	}
	return thaw(ctx, r, data, r.Outputs.Target())
}

// First saves the data of a stage that has just become ready, unless this birth has a save: from then on,
// they can be restored.
func First(ctx context.Context, r *run.Run, s *config.Stage) error {
	for _, d := range s.Survivors {
		data, err := Bind(r, s, d)
		if err != nil {
			return err
		}
		saves, err := data.Survivor.Saves(ctx)
		b := r.Outputs.Births()[d.Label]
		saved := func(s survivor.Save) bool { return s.Path == b.Path && s.Position != nil }
		if err == nil && !slices.ContainsFunc(saves, saved) {
			_, err = data.Survivor.Save(ctx, b, false)
		}
		if err != nil {
			return fmt.Errorf("data %s: the first save: %w", d.Label, err)
		}
	}
	return nil
}

// Age is how old the newest save of data is. Without a Save there is none, or Problem says why castle does
// not know.
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
	return each(r, func(data Data, err error) Age {
		a := Age{Name: data.Label, Frozen: r.Outputs.Births()[data.Label].Frozen}
		if data.RPO > 0 {
			a.RPO = data.RPO.String()
		}
		var saves []survivor.Save
		if err == nil {
			saves, err = data.Survivor.Saves(ctx)
		}
		// What castle has only found was never proved.
		saves = slices.DeleteFunc(saves, func(s survivor.Save) bool { return s.Position == nil })
		switch {
		case err != nil:
			a.Problem, a.Overdue = foreign.OneLine(err.Error()), data.RPO > 0
		case len(saves) == 0:
			a.Overdue = data.RPO > 0
		default:
			a.Save, a.Overdue = &saves[0], data.RPO > 0 && time.Since(saves[0].Time) > data.RPO
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
	return each(r, func(data Data, err error) Listed {
		l := Listed{Name: data.Label, Saves: []survivor.Save{}}
		var saves []survivor.Save
		if err == nil {
			saves, err = data.Survivor.Saves(ctx)
		}
		if err != nil {
			l.Problem = foreign.OneLine(err.Error())
		}
		l.Saves = append(l.Saves, saves...)
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
	return each(r, func(data Data, err error) Proof {
		p := Proof{Name: data.Label}
		var saves []survivor.Save
		if err == nil {
			saves, err = data.Survivor.Saves(ctx)
		}
		for i, s := range saves {
			if p.Save == nil && (id == "" || s.ID == id) {
				p.Save = &saves[i]
				_, err = data.Survivor.Prove(ctx, s)
			}
		}
		if err != nil {
			p.Problem = foreign.OneLine(err.Error())
		}
		return p
	})
}

// each calls do for the data of each survives block, or with the reason why they are not known.
func each[T any](r *run.Run, do func(Data, error) T) []T {
	type one struct {
		data Data
		err  error
	}
	var all []one
	for _, s := range r.Cluster.Config.Stages {
		for _, d := range s.Survivors {
			data, err := Bind(r, s, d)
			data.Label = d.Label
			all = append(all, one{data, err})
		}
	}
	return run.Each(all, func(o one) T { return do(o.data, o.err) })
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
	all := []Taken{}
	var errs []error
	for _, result := range each(r, func(data Data, err error) func() (Taken, error) {
		return func() (Taken, error) {
			if err != nil {
				return Taken{}, err
			}
			return take(ctx, r, data, ifOlderThan)
		}
	}) {
		one, err := result()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, one)
	}
	return all, errors.Join(errs...)
}

func take(ctx context.Context, r *run.Run, data Data, ifOlderThan time.Duration) (Taken, error) {
	t := Taken{Name: data.Label}
	b, decided := r.Outputs.Births()[data.Label]
	if !decided {
		return t, cluster.Usagef("data %s: it is not decided how they begin; create the cluster first: %s",
			data.Label, r.Cluster.Command("create"))
	}
	if ifOlderThan > 0 {
		saves, err := data.Survivor.Saves(ctx)
		if err != nil {
			return t, fmt.Errorf("data %s: %w", data.Label, err)
		}
		if len(saves) > 0 && saves[0].Path == b.Path && time.Since(saves[0].Time) < ifOlderThan {
			t.Save = &saves[0]
			return t, nil
		}
	}
	var err error
	if t.Save, err = data.Survivor.Save(ctx, b, false); err != nil {
		return t, fmt.Errorf("data %s cannot be saved: %w", data.Label, err)
	}
	t.Taken = true
	return t, nil
}

// names lists labels within a sentence.
func names(all []Data) string {
	return strings.Join(xslices.Map(all, func(d Data) string { return d.Label }), ", ")
}
