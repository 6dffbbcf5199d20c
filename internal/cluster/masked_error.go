package cluster

import (
	"errors"
)

// hiddenError is an error whose words have been masked. What it wraps can be
// recognised but must not be printed.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }

func (e *maskedError) Unwrap() error { return e.err }

// conceal masks every error that is joined in err: Terraform quotes values in
// its messages, and not only those that it knows to be sensitive.
func (c *Cluster) MaskError(err error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, c.MaskError(e))
		}
		return errors.Join(all...)
	}
	return &maskedError{text: c.Masker.Hide(err.Error()), err: err}
}
