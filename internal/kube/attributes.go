package kube

import (
	"errors"

	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/labels"
)

// validName refuses what would make another question of a request's path.
func validName(x cty.Value) error {
	name := x.AsString()
	if name == "" {
		return errors.New("is empty")
	}
	for _, r := range name {
		if r == '/' || r == '%' || r == ',' || r == '=' || r <= ' ' {
			return errors.New(name + " is no name of an object")
		}
	}
	return nil
}

func validSelector(x cty.Value) error {
	_, err := labels.Parse(x.AsString())
	return err
}
