package probe

import (
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"path/filepath"

	"github.com/zclconf/go-cty/cty"
)

// errNoURL does not quote the URL: there may be a password in it.
var errNoURL = errors.New(`is no URL such as "https://10.0.0.5:8443/health"`)

func validURL(x cty.Value) error {
	u, err := url.Parse(x.AsString())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || !plainHost(u.Hostname()) {
		return errNoURL
	}
	if u.Fragment != "" {
		return fmt.Errorf("ends with #%s, which no server is ever sent", u.Fragment)
	}
	if u.Port() == "" {
		return nil
	}
	return validPort(u.Port())
}

func validStatus(x cty.Value) error {
	if x.LengthInt() == 0 {
		return errors.New("lists no status; leave it out to take any 2xx")
	}
	for it := x.ElementIterator(); it.Next(); {
		_, one := it.Element()
		if one.IsNull() {
			return errors.New("null is no status")
		}
		if code, accuracy := one.AsBigFloat().Int64(); accuracy != big.Exact || code < 200 || code > 599 {
			return fmt.Errorf("%s is no status that a GET ends with (200 to 599)", one.AsBigFloat().Text('g', -1))
		}
	}
	return nil
}

func validText(x cty.Value) error {
	if x.AsString() == "" {
		return errors.New("is empty: every answer contains that")
	}
	return nil
}

func validPath(x cty.Value) error {
	if !filepath.IsAbs(x.AsString()) {
		return fmt.Errorf("%q must begin with /: castle may be started anywhere", x.AsString())
	}
	return nil
}
