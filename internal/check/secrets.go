package check

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// sensitive reports whether a stage declares a variable as sensitive.
func (c *cluster) sensitive(variable string) bool {
	return slices.ContainsFunc(slices.Concat(c.config.Stages, c.config.Disabled), func(s *config.Stage) bool {
		return s.Variables[variable].Sensitive
	})
}

// checkSecrets checks the values in files that belong into Git.
func checkSecrets(c *cluster, report reporter) {
	file := path.Join("clusters", c.config.Name, c.config.Platform, "secrets.tfvars")
	for _, w := range c.config.Committed() {
		private, found := c.sensitive(w.Name), false
		syntax.Texts(w.Value, func(steps []string, text string) {
			found = true
			certain, named := secret.Likely(text)
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
					"This file belongs into Git. If it is a secret, move it to Infisical, Vault or %s.", file)
			}
		})
		if private && found {
			report("secret-open", w.At(), fmt.Sprintf("variable %s: a secret in a file for Git", w.Name),
				"It is sensitive. Move it to %s (mode 0600, never in Git) or set TF_VAR_%s; "+
					"if this file was committed, replace the secret.", file, w.Name)
		}
	}
}

// checkModes checks the modes of the exported kubeconfig and talosconfig, and of castle's state.
func checkModes(c *cluster, report reporter) {
	wrong := func(kind Kind, file, shown, summary string, want os.FileMode) {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm()&0o077 == 0 || !info.IsDir() && !info.Mode().IsRegular() {
			return // it has not been written yet, or only its owner can open it
		}
		at := hcl.Range{Filename: shown, Start: hcl.InitialPos, End: hcl.InitialPos}
		report(kind, at, summary, "Its mode is %04o and must be %04o: it holds secrets of the cluster. "+
			"Run chmod %o %s", info.Mode().Perm(), want, want, shown)
	}
	dir := filepath.Join(c.config.Dir, "configs")
	shown := path.Join("clusters", c.config.Name, c.config.Platform, "configs")
	wrong("configs-mode", dir, shown, "configs: open to others", 0o700)
	entries, _ := os.ReadDir(dir) // castle reports an error when it writes there
	for _, e := range entries {
		if e.Type().IsRegular() {
			name := e.Name()
			wrong("configs-mode", filepath.Join(dir, name), path.Join(shown, name),
				name+": readable by others", 0o600)
		}
	}
	if c.stateDir == "" {
		return
	}
	name := filepath.Join(c.stateDir, c.config.Name)
	for _, dir := range []string{c.stateDir, name, filepath.Join(name, c.config.Platform)} {
		wrong("state-mode", dir, dir, "state directory: open to others", 0o700)
	}
}

// checkGitURL warns of a repository that Flux reads without encryption.
func checkGitURL(c *cluster, report reporter) {
	if strings.HasPrefix(c.text("git_url"), "http://") {
		report("git-unencrypted", c.at("git_url"), "git_url: not encrypted",
			"Flux sends the token over this connection, and applies what comes back as the cluster's "+
				"administrator: whoever is on the way can change both. Use https:// or ssh:// outside of a "+
				"network that you trust.")
	}
}
