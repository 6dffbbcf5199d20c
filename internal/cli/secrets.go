package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/secretstore"
)

func newSecrets(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Put a cluster's secrets where it reads them",
		Long: `Put a cluster's secrets where it reads them: into its folder of Infisical, or
into a Vault.`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no `castle secrets %s`", args[0])
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSecretsSeed(a))
	return cmd
}

func newSecretsSeed(a *app) *cobra.Command {
	from := ""
	cmd := &cobra.Command{
		Use:   "seed CLUSTER",
		Short: "Write the secrets that are missing in Infisical or Vault; what is there stays",
		Long: `Write the secrets that a cluster reads and that are missing, or empty, in its
folder of Infisical or in its Vault. What is there is never changed.

They are asked for, without showing what is typed, or taken from a file with mode
0600: NAME = "value" lines, <<EOT for values of several lines, or the
secrets.tfvars of a cluster that had no vault. Values are never shown.`,
		Args: a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			secrets := map[string]string{}
			if from != "" {
				read, files, diags := secretstore.ReadFile(from)
				if diags.HasErrors() {
					return &castle.ConfigError{Diagnostics: diags, Files: files}
				}
				secrets = read
			}
			c, err := a.open(args[0], nil)
			if err != nil {
				return err
			}
			s, err := c.Seed(cmd.Context())
			if err != nil {
				return err
			}
			if from == "" && len(s.Missing) > 0 {
				if err := a.typeSecrets(s, secrets); err != nil {
					return err
				}
			}
			if err := s.Check(secrets); err != nil {
				return err
			}
			done, err := s.Write(cmd.Context(), secrets)
			if err != nil {
				return err
			}
			return a.seeded(s, done)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "take them from `FILE`, mode 0600")
	a.valueFlags(cmd)
	return cmd
}

// typeSecrets asks for what is missing. Who cannot be asked hears what that is.
func (a *app) typeSecrets(s *castle.Seeding, secrets map[string]string) error {
	if !isTerminal(a.stdin) {
		return &castle.UsageError{Message: fmt.Sprintf("%s lacks, or has empty: %s\n  give them in a file (--from), or call castle on a terminal",
			s.Where, strings.Join(s.Missing, ", "))}
	}
	terminal := a.stdin.(*os.File)
	a.prompting(true)
	defer a.prompting(false)
	show, err := a.hide(terminal)
	if err != nil {
		return err
	}
	defer show()
	fmt.Fprintf(a.stderr, "Into %s. What you type is not shown.\n", s.Where)
	for _, name := range s.Missing {
		value, err := a.typeSecret(terminal, name, s.Optional[name])
		if err != nil {
			return err
		}
		if value != "" {
			secrets[name] = value
		}
	}
	return nil
}

// typeSecret asks for one until it is given, or left out.
func (a *app) typeSecret(terminal *os.File, name string, optional bool) (string, error) {
	for {
		fmt.Fprint(a.stderr, name)
		if optional {
			fmt.Fprint(a.stderr, " (optional, nothing to leave it out)")
		}
		fmt.Fprint(a.stderr, ": ")
		text, err := term.ReadPassword(int(terminal.Fd()))
		fmt.Fprintln(a.stderr)
		if err != nil {
			return "", errors.Join(&castle.UsageError{Message: "no answer; nothing was written"}, err)
		}
		value := strings.TrimSpace(string(text))
		if strings.HasPrefix(value, "-----BEGIN") { // its other lines would be taken for the next answers
			return "", &castle.UsageError{Message: name + ": a value of several lines comes from a file (--from); nothing was written"}
		}
		if value != "" || optional {
			return value, nil
		}
	}
}

func (a *app) seeded(s *castle.Seeding, done []castle.Seeded) error {
	if a.output == "json" {
		return a.printJSON(map[string]any{"where": s.Where, "secrets": done})
	}
	wide := 0
	for _, d := range done {
		wide = max(wide, len(d.Name))
	}
	for _, d := range done {
		result := "was there"
		switch {
		case d.Written:
			result = "written"
		case !d.There:
			result = "left out"
		}
		if _, err := fmt.Fprintf(a.stdout, "%-*s  %s\n", wide, d.Name, result); err != nil {
			return err
		}
	}
	return nil
}
