package kube

import (
	"errors"
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
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

// validNames wants at least one name.
func validNames(x cty.Value) error {
	if x.LengthInt() == 0 {
		return errors.New("names nothing")
	}
	for _, name := range x.AsValueSlice() {
		if name.IsNull() {
			return errors.New("a name is needed, not null")
		}
		if err := validName(name); err != nil {
			return err
		}
	}
	return nil
}

// validWord refuses what no identifier can be.
func validWord(x cty.Value) error {
	if x.AsString() == "" || strings.ContainsAny(x.AsString(), " \t\n") {
		return fmt.Errorf("%q is no single word", x.AsString())
	}
	return nil
}

func validStatus(x cty.Value) error {
	switch x.AsString() {
	case "True", "False", "Unknown":
		return nil
	}
	return fmt.Errorf("%q is none of True, False and Unknown", x.AsString())
}

// validVersion wants "v1" or "group/v1".
func validVersion(x cty.Value) error {
	gv, err := schema.ParseGroupVersion(x.AsString())
	if err != nil || validation.IsDNS1035Label(gv.Version) != nil || gv.Group != "" && validation.IsDNS1123Subdomain(gv.Group) != nil {
		return fmt.Errorf(`%q is no group and version such as "apps/v1"`, x.AsString())
	}
	return nil
}

func validSelector(x cty.Value) error {
	_, err := labels.Parse(x.AsString())
	return err
}
