package gate

import "errors"

// Kind classifies a finding or a diagnosis, for code that decides on it; texts are for people. These kinds
// are compared by several packages; a kind of one package's findings is defined there.
type Kind string

const (
	// NotFound: the object does not exist (yet).
	NotFound Kind = "not-found"
	// EtcdDown: every control plane answers and none runs etcd.
	EtcdDown Kind = "etcd-down"
	// NeverBootstrapped: every control plane waits to join an etcd that does not exist.
	NeverBootstrapped Kind = "never-bootstrapped"
)

// Finding is an error of a known kind: why a gate is closed, or the problem of an object.
type Finding struct {
	Kind   Kind
	Object string // "deployment metallb-system/controller"; empty if Text names it
	Text   string
	Err    error // the cause, if any; it stands for an empty Object and Text
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
	var p permanent
	return errors.As(err, &p)
}

// Diagnosis is the evidence collected around a closed gate and the likely cause. It never holds a Secret's
// data or any other credential.
type Diagnosis struct {
	// Files are written below the run's diagnosis folder, by slash-separated name. Gates that collect the
	// same object give it the same name.
	Files map[string][]byte
	// Kind is set where code decides on the cause; mostly empty.
	Kind Kind
	// Cause is the likely cause, one sentence; empty if no known cause fits.
	Cause string
	// Look is the command that shows more. The caller adds the kubeconfig or talosconfig.
	Look string
	// Release is the installed Helm release, namespace/name, whose chart contains the missing object: it was
	// deleted since, which Helm and Terraform do not notice.
	Release string
}
