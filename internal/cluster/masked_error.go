package cluster

import (
	"errors"
)

// maskedError is an error with masked text. Callers may match the wrapped error but must not print it.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }

func (e *maskedError) Unwrap() error { return e.err }

// MaskError masks every error that is joined in err: Terraform also quotes values that it does not know
// to be sensitive.
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
