// Package gate holds castle's promise: nothing starts before everything it needs is ready. It defines what a
// gate is and how to wait for one; the checks live with the clients that answer them. A Gate's Check is one
// attempt. Wait repeats it, so `create` waits for exactly what `status` checks once. Gates fail closed: a
// gate that is not proved open is closed. "does not exist yet" is an ordinary reason to wait; only an error
// marked Permanent ends a wait early. Code that decides on an answer compares its Kind, never its text.
package gate

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/gocty"

	"github.com/ephemeral-castle/castle/internal/event"
)

// Gate is one check, bound to one cluster and to known arguments.
type Gate struct {
	// Name is the gate's type and label, as in the stage's file: "endpoint_slice.webhook".
	Name string
	// Check makes one attempt and returns nil when the gate is open, otherwise an error that names the
	// missing part for a person. It must honour ctx.
	Check func(ctx context.Context) error
	// Changed, when set, signals that the objects that Check has read may have changed, and whenever a watch
	// begins. It is called after a Check. The channel holds one signal, because a change while Wait does not
	// listen must not be lost. A gate without Changed is polled.
	Changed func(ctx context.Context) <-chan struct{}
	// TriggerReconcile, when set, asks controllers to reconcile objects that are idle although nothing
	// blocks them, and describes its action; empty if none. Only Wait calls it, at most every few seconds:
	// Check itself never changes anything.
	TriggerReconcile func(ctx context.Context) (did string, err error)
	// Diagnose, when set, collects evidence that may explain a closed gate. last is the last answer of its
	// Check, which counts where the system does not answer the diagnosis.
	Diagnose func(ctx context.Context, last error) Diagnosis
	// Convergence, when set, reads how the objects of Flux got ready, for the report on the wait.
	Convergence func(ctx context.Context) ([]event.FluxStep, error)
}

// Attribute is one argument that a gate's or preflight's HCL block takes.
type Attribute struct {
	Type     cty.Type // the expression's value is converted to it
	Required bool
	Help     string // one sentence, for messages and documentation
	// Valid, when set, checks a known, non-null value and returns its problem.
	Valid func(cty.Value) error
}

// Target is the cluster that a gate checks, as its platform describes it. The configs are file contents;
// empty as long as no platform has output them.
type Target struct {
	Kubeconfig  []byte
	Talosconfig []byte
	// MachineKey is the cluster's public key from which a stage may derive the uuids of its machines; empty
	// if the state directory has none.
	MachineKey string
	// Environ is the caller's environment, which holds Infisical's credentials.
	Environ []string
}

// BlockType is one kind of block in a stage's file, which New binds to a T.
type BlockType[T any] struct {
	Name       string // the block's first label: "endpoint_slice"
	Summary    string
	Attributes map[string]Attribute
	// Check, when set, checks the attributes together; values may be unknown.
	Check func(Values) error
	New   func(name string, target Target, values Values) (T, error)

	// Kubernetes and Talos report which of Target's files a gate reads. Either makes an edge from the
	// gate's stage to the platform.
	Kubernetes, Talos bool
	// Layer, of a survives block, is the layer whose stages are ready before the block's stage is applied.
	Layer string
	// HasMachineIDs reports whether a preflight's inspections return MachineIDs: it runs after applies, too.
	HasMachineIDs bool
}

type (
	// Type is one kind of gate. Every gate also has the attributes timeout, stable and needs.
	Type = BlockType[Gate]
	// PreflightType is one kind of preflight: a check of the outside world before a stage changes anything.
	PreflightType = BlockType[Preflight]
	// ExistsType is one kind of exists block. An adoption uses it to check that its object exists, where an
	// import gives no clear answer or takes long.
	ExistsType = BlockType[Exists]
)

// Exists is an ExistsType bound to known arguments.
type Exists struct {
	Name string
	// Object is what Lookup looks for, for the receipt of a destroy. It has no ID if its machines end it.
	Object Object
	// Lookup is one attempt, and changes nothing. It is repeated after an error that is not Permanent.
	Lookup func(ctx context.Context) (bool, error)
}

// Object is something outside of Terraform.
type Object struct {
	Kind string // Infisical secret, Namespace
	ID   string // its name, with its folder or namespace
	Fix  string // how to remove it by hand
}

// Values are a block's arguments, converted to their attributes' types. An argument that was not given is
// absent. The accessors return the zero value for absent, null or unknown arguments.
type Values map[string]cty.Value

// Has reports whether the argument was given and is known.
func (v Values) Has(name string) bool {
	x, ok := v[name]
	return ok && x.IsWhollyKnown() && !x.IsNull()
}

// String returns a string argument.
func (v Values) String(name string) string {
	if !v.Has(name) {
		return ""
	}
	return v[name].AsString()
}

// Int returns a number argument that is a whole number.
func (v Values) Int(name string) int {
	if !v.Has(name) {
		return 0
	}
	n, accuracy := v[name].AsBigFloat().Int64()
	if accuracy != big.Exact {
		return 0
	}
	return int(n)
}

// Bool returns a bool argument.
func (v Values) Bool(name string) bool { return v.Has(name) && v[name].True() }

// Duration returns an argument such as "90s" that ValidDuration has accepted.
func (v Values) Duration(name string) time.Duration {
	d, _ := time.ParseDuration(v.String(name)) //nolint:errcheck // ValidDuration has checked it
	return d
}

// Decode copies a list or map argument, unless it is absent, into the Go value that into points to.
func (v Values) Decode(name string, into any) error {
	if !v.Has(name) {
		return nil
	}
	return gocty.FromCtyValue(v[name], into)
}

// ValidDuration accepts a positive Go duration: "90s", "5m", "1h30m".
func ValidDuration(x cty.Value) error {
	if d, err := time.ParseDuration(x.AsString()); err != nil || d <= 0 {
		return fmt.Errorf(`invalid duration %q; use "90s" or "5m"`, x.AsString())
	}
	return nil
}

// ValidForm accepts what parse accepts; form describes it: "an IP address".
func ValidForm[T any](parse func(string) (T, error), form string) func(cty.Value) error {
	return func(x cty.Value) error {
		if _, err := parse(x.AsString()); err != nil {
			return fmt.Errorf("%q is not %s", x.AsString(), form)
		}
		return nil
	}
}

// ValidCount accepts a whole number of at least one.
func ValidCount(x cty.Value) error {
	if n, accuracy := x.AsBigFloat().Int64(); accuracy != big.Exact || n < 1 {
		return fmt.Errorf("invalid count %s; use a whole number of at least 1", x.AsBigFloat().Text('g', -1))
	}
	return nil
}

// Kind classifies a finding or a diagnosis, for code that decides on it; texts are for people. These kinds
// are compared by several packages; a kind of one package's findings is defined there.
type Kind string

const (
	// NotFound: the object does not exist (yet).
	NotFound Kind = "not-found"
	// Waits: the object waits for another one.
	Waits Kind = "waits"
	// EtcdDown: every control plane answers and none runs etcd.
	EtcdDown Kind = "etcd-down"
	// NeverBootstrapped: every control plane waits to join an etcd that does not exist.
	NeverBootstrapped Kind = "never-bootstrapped"
	// UpgradeNeeded: what runs has another version than the configuration names.
	UpgradeNeeded Kind = "upgrade-needed"

	// The others are of what a healthy cluster passes through. They last if something else is wrong.
	NoObjects      Kind = "no-objects"      // no object of the kind exists
	NotEstablished Kind = "not-established" // the API server has not finished installing a definition
	NeverReported  Kind = "never-reported"  // a node without the condition Ready
	DriverMissing  Kind = "driver-missing"  // a CSI driver is not registered on a node
)

// IsCause reports whether a finding of the kind names a cause: not what something else may be the cause of.
func (k Kind) IsCause() bool {
	return !slices.Contains([]Kind{"", NotFound, Waits, NoObjects, NotEstablished, NeverReported,
		DriverMissing}, k)
}

// Finding is an error of a known kind: why a gate is closed, or the problem of an object.
type Finding struct {
	Kind   Kind
	Object string // "deployment metallb-system/controller"; empty if Text names it
	Text   string
	Err    error // the cause, if any; it stands for an empty Object and Text
	// Unwatched reports that no change of an object tells when this passes: Wait asks again in half a second.
	Unwatched bool
}

func (f *Finding) Error() string {
	if f.Text == "" && f.Err != nil {
		return f.Err.Error()
	}
	if f.Object == "" {
		return f.Text
	}
	return f.Object + ": " + f.Text
}

func (f *Finding) Unwrap() error { return f.Err }

// KindOf returns the kind of the first Finding that err is or wraps; empty if there is none.
func KindOf(err error) Kind {
	if f := (*Finding)(nil); errors.As(err, &f) {
		return f.Kind
	}
	return ""
}

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks an error that no waiting can heal. Wait returns it at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// IsPermanent reports whether err, or an error that it wraps, was marked by Permanent.
func IsPermanent(err error) bool {
	return errors.As(err, new(permanent))
}

// Diagnosis is the evidence collected around a closed gate and the likely cause. It never holds a credential.
type Diagnosis struct {
	// Files are written below the run's diagnosis folder, by slash-separated name. Gates that collect the
	// same object give it the same name.
	Files map[string][]byte
	// Kind is set where code decides on the cause; mostly empty. NotFound: something does not exist, which is
	// often the consequence of another cause.
	Kind Kind
	// About names the object that the cause is about, such as "node worker-01". Gates that are closed for the
	// same object have one cause. Empty: gates with an equal Cause have.
	About string
	// Cause is the likely cause, one sentence; empty if no known cause fits.
	Cause string
	// Look is the command that shows more. The caller adds the kubeconfig or talosconfig.
	Look string
	// Release is the installed Helm release, namespace/name, whose chart contains the missing object: it was
	// deleted since, which Helm and Terraform do not notice.
	Release string
}
