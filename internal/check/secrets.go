package check

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// sensitive reports whether a stage declares a variable as sensitive.
func (c *cluster) sensitive(variable string) bool {
	return slices.ContainsFunc(slices.Concat(c.config.Stages, c.config.Disabled), func(s *config.Stage) bool {
		return s.Variables[variable].Sensitive
	})
}

// checkSecrets looks at the values in files that belong into Git.
func checkSecrets(c *cluster, report reporter) {
	file := path.Join("clusters", c.config.Name, c.config.Platform, "secrets.tfvars")
	for _, w := range c.config.Open() {
		private, found := c.sensitive(w.Name), false
		_ = cty.Walk(w.Value, func(p cty.Path, v cty.Value) (bool, error) { // the function returns none
			if tfeval.Text(v) == "" {
				return true, nil
			}
			found = true
			steps := steps(p)
			certain, named := secret.Likely(tfeval.Text(v))
			named = named || len(steps) > 0 && secret.LikelyName(steps[len(steps)-1])
			name := strings.Join(append([]string{w.Name}, steps...), ".")
			switch {
			case private:
			case certain:
				report("secret-likely", w.At(steps...), name+": looks like a credential",
					"This file belongs into Git. Move the value to Infisical, Vault or %s; "+
						"if the file was committed, replace the credential.", file)
			case named:
				report("secret-named", w.At(steps...), name+": named like a credential",
					"This file belongs into Git. If the value is a secret, move it to Infisical, Vault or %s.", file)
			}
			return true, nil
		})
		if private && found {
			report("secret-open", w.At(), fmt.Sprintf("variable %s: a secret in a file for Git", w.Name),
				"It is sensitive. Move it to %s (mode 0600, never in Git) or set TF_VAR_%s; "+
					"if this file was committed, replace the secret.", file, w.Name)
		}
	}
}

func steps(p cty.Path) []string {
	var all []string
	for _, step := range p {
		switch s := step.(type) {
		case cty.GetAttrStep:
			all = append(all, s.Name)
		case cty.IndexStep:
			if n, ok := tfeval.Whole(s.Key); ok {
				all = append(all, fmt.Sprint(n))
			} else {
				all = append(all, tfeval.Text(s.Key))
			}
		}
	}
	return all
}

// others are the permissions of everybody but the owner.
const others = 0o077

// whole is the place of a file or folder as a whole.
func whole(name string) hcl.Range {
	return hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// checkConfigsMode looks at the exported kubeconfig and talosconfig, which open the cluster.
func checkConfigsMode(c *cluster, report reporter) {
	dir := filepath.Join(c.config.Dir, "configs")
	shown := path.Join("clusters", c.config.Name, c.config.Platform, "configs")
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return // nothing has been exported yet
	}
	if mode := info.Mode().Perm(); mode&others != 0 {
		report("configs-mode", whole(shown), "configs: open to others",
			"The mode of %s is %04o and must be 0700. Run chmod 700 %s", shown, mode, shown)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // castle reports it when it writes there
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&others != 0 {
			name := path.Join(shown, e.Name())
			report("configs-mode", whole(name), e.Name()+": readable by others",
				"Its mode is %04o and must be 0600. Run chmod 600 %s", info.Mode().Perm(), name)
		}
	}
}

// checkStateMode looks at castle's state, which holds every secret of the cluster.
func checkStateMode(c *cluster, report reporter) {
	if c.stateDir == "" {
		return
	}
	name := filepath.Join(c.stateDir, c.config.Name)
	for _, dir := range []string{c.stateDir, name, filepath.Join(name, c.config.Platform)} {
		info, err := os.Stat(dir)
		if err == nil && info.Mode().Perm()&others != 0 {
			report("state-mode", whole(dir), "state directory: open to others",
				"Its mode is %04o and must be 0700: it holds every secret of the cluster. Run chmod 700 %s",
				info.Mode().Perm(), dir)
		}
	}
}
