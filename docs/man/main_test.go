package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cli"
)

func TestEveryCommandHasAManPage(t *testing.T) {
	folder := t.TempDir()
	if err := write(folder); err != nil {
		t.Fatal(err)
	}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() || cmd.Name() == "help" {
			return
		}
		page, err := os.ReadFile(filepath.Join(folder, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
		}
		sections := map[string]bool{"NAME": true, "SYNOPSIS": true, "EXAMPLE": cmd.Example != ""}
		for section, has := range sections {
			if has && !strings.Contains(string(page), ".SH "+section+"\n") {
				t.Errorf("the page of %s has no section %s", cmd.CommandPath(), section)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(cli.Command())
}

func TestManPagesKeepTheLinesOfLists(t *testing.T) {
	folder := t.TempDir()
	if err := write(folder); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(folder, "castle-list.1"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n  absent          nothing is recorded\n") {
		t.Errorf("the states of castle list are not on lines of their own:\n%s", page)
	}
}
