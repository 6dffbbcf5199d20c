package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"
	"golang.org/x/term"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/seed"
)

func newSecrets(a *app) *cobra.Command {
	return group("secrets", "Write a cluster's secrets to Infisical or Vault",
		"Write a cluster's secrets to the store that it reads them from: Infisical or Vault.",
		newSecretsSeed(a))
}

func newSecretsSeed(a *app) *cobra.Command {
	from := ""
	cmd := a.valueFlags(&cobra.Command{
		Use:   "seed CLUSTER",
		Short: "Write missing secrets to Infisical or Vault; existing ones stay unchanged",
		Long: `Write the secrets that a cluster reads and that are missing or empty in its folder of
Infisical or in its Vault. castle never changes an existing secret.

castle asks for the values without showing the input, or reads them from a file with
mode 0600: NAME = "value" lines, <<EOT for values of several lines, or the
secrets.tfvars of a cluster that had no store. It never shows a value.`,
		Example: `  castle secrets seed blue
  castle secrets seed blue --from secrets.hcl`,
		Args: a.oneCluster(),
		RunE: a.onCluster(nil, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			secrets := map[string]string{}
			if from != "" {
				if err := readSecrets(from, secrets); err != nil {
					return err
				}
			}
			s, err := seed.Prepare(ctx, c)
			if err != nil {
				return err
			}
			if from == "" && len(s.Missing) > 0 {
				if err := askSecrets(a, s, secrets); err != nil {
					return err
				}
			}
			if err := s.Check(secrets); err != nil {
				return err
			}
			done, err := s.Write(ctx, secrets)
			if err != nil {
				return err
			}
			document := map[string]any{"where": s.Collection.Where, "secrets": done}
			return a.print(document, func(w io.Writer) {
				for _, d := range done {
					result := cmp.Or(textIf(d.Written, "written"), textIf(!d.There, "skipped"), "exists")
					fmt.Fprintf(w, "%s\t%s\n", d.Name, result)
				}
			})
		}),
	})
	cmd.Flags().StringVar(&from, "from", "", "read the secrets from `FILE`, mode 0600")
	return cmd
}

// readSecrets reads a file of NAME = "value" lines, or a secrets.tfvars, that only its owner can read.
func readSecrets(file string, secrets map[string]string) error {
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
		return refuse("%s: readable by others. The file holds secrets, so its mode must be 0600. Run "+
			"chmod 600 %[1]s", file)
	}
	const form = "A secret is a text in quotes, or <<EOT … EOT."
	return readTexts("--from", file, true, form, func(name string, v cty.Value) bool {
		values := map[string]cty.Value{name: v}
		if name == "local_secrets" && v.CanIterateElements() { // the variable of secrets/local
			values = v.AsValueMap()
		}
		for name, v := range values {
			text, ok := asText(v)
			if !ok || v.Type().IsTupleType() {
				return false
			}
			secrets[name] = text
		}
		return true
	})
}

// askSecrets asks for the missing secrets. Without a terminal it lists them in the error.
func askSecrets(a *app, s *seed.Seeding, secrets map[string]string) error {
	if !isTerminal(a.stdin) {
		return refuse("%s: missing or empty: %s\n  give them in a file (--from), or run castle on a terminal",
			s.Collection.Where, strings.Join(s.Missing, ", "))
	}
	terminal := a.stdin.(*os.File)
	defer a.interrupts.prompt()()
	show, err := a.interrupts.hideInput(terminal)
	if err != nil {
		return err
	}
	defer show()
	fmt.Fprintf(a.stderr, "Writing to %s. The input is not shown.\n", s.Collection.Where)
	for _, name := range s.Missing {
		value, err := askSecret(a, terminal, name, s.Collection.Optional[name])
		if err != nil {
			return err
		}
		if value != "" {
			secrets[name] = value
		}
	}
	return nil
}

// askSecret asks for one secret until it is given or, if it is optional, left empty.
func askSecret(a *app, terminal *os.File, name string, optional bool) (string, error) {
	for {
		fmt.Fprintf(a.stderr, "%s%s: ", name, textIf(optional, " (optional, empty to skip)"))
		text, err := term.ReadPassword(int(terminal.Fd()))
		fmt.Fprintln(a.stderr)
		if err != nil {
			return "", errors.Join(refuse("no answer; nothing was written"), err)
		}
		value := strings.TrimSpace(string(text))
		if strings.HasPrefix(value, "-----BEGIN") { // the next prompts would read its other lines
			return "", refuse("%s: pass a value of several lines in a file (--from); nothing was written",
				name)
		}
		if value != "" || optional {
			return value, nil
		}
	}
}
