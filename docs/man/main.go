// Command man writes the man pages of castle's commands into a folder:
//
//	go run ./docs/man DIR
//
// It is a command of its own, so that castle does not contain what it needs.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/ephemeral-castle/castle/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// write writes a man page for each command. Their date is that of SOURCE_DATE_EPOCH, or today.
func write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root := cli.Command()
	keepLists(root)
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "castle", Manual: "castle"}, folder)
}

// keepLists marks the lists of help texts as code: the pages are made from Markdown, which would join their
// lines.
func keepLists(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	paragraphs := strings.Split(cmd.Long, "\n\n")
	for i, text := range paragraphs {
		if strings.Contains("\n"+text, "\n  ") {
			paragraphs[i] = "    " + strings.ReplaceAll(text, "\n", "\n    ")
		}
	}
	cmd.Long = strings.Join(paragraphs, "\n\n")
	for _, sub := range cmd.Commands() {
		keepLists(sub)
	}
}
