// Command bench measures castle beside plain Terraform in a shell script and beside Terragrunt, on the same
// modules, in one go. It writes medians and ratios to RESULTS.md and results.json, or compares the ratios
// with those that results.json records. `make bench` and `make bench-check` run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// options are the flags.
type options struct {
	rounds, wideRounds int
	copies             int // of the six units, in the wide roots
	parallel           int
	roots              string
	bin, out           string
	measures           string // the file for those of the typed commands, inside a rehearsal
	compare            bool
}

func main() {
	o := options{}
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of the six roots and of the short commands")
	flag.IntVar(&o.wideRounds, "wide-rounds", 1, "rounds of the wide roots")
	flag.IntVar(&o.copies, "copies", 50, "copies of the six roots that make the wide roots: 50 are 300")
	flag.IntVar(&o.parallel, "parallel", 4, "roots at a time, for each tool")
	flag.StringVar(&o.roots, "roots", "plugins,cluster,data,wide,commands,typed",
		"what to measure; thousand takes long and belongs beside wide")
	flag.StringVar(&o.bin, "bin", "bin", "folder of castle, terragrunt and the providers")
	flag.StringVar(&o.out, "out", "bench", "folder of RESULTS.md and results.json")
	flag.StringVar(&o.measures, "typed", "", "measure typed commands into this file; the lab is around it")
	flag.BoolVar(&o.compare, "compare", false, "compare with results.json instead of writing it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if code, err := o.start(ctx); err != nil || code != 0 {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(max(code, 1))
	}
}

func (o options) start(ctx context.Context) (code int, err error) {
	if o.measures != "" {
		return 0, o.measureTyped(ctx)
	}
	if os.Getenv(isolatedVariable) == "" {
		return isolate(ctx)
	}
	if err := raiseLoopback(); err != nil {
		return 1, err
	}
	return 0, o.run(ctx)
}

func (o options) run(ctx context.Context) error {
	p, err := o.programs()
	if err != nil {
		return err
	}
	m, err := look(ctx, p) // the load before all else
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{options: o, programs: p, dir: dir, samples: samples{}}
	steps := map[string]func(context.Context) error{rootsPlugins: b.plugins, rootsCluster: b.cluster,
		rootsData: b.data, rootsWide: b.wide, rootsThousand: b.thousand, rootsCommands: b.commands,
		rootsTyped: b.typed}
	for _, roots := range strings.Split(o.roots, ",") {
		step, ok := steps[roots]
		if !ok {
			return fmt.Errorf("-roots %s: one of %s", roots, strings.Join(allRoots, ", "))
		}
		if err := step(ctx); err != nil {
			return fmt.Errorf("%s: %w", roots, err)
		}
	}
	fmt.Print(markdown(m, b.samples, o))
	if o.compare {
		return b.samples.check(o.out)
	}
	return b.samples.write(o.out, m, o)
}

// programs finds what is measured.
func (o options) programs() (p programs, err error) {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return p, err
	}
	p.castle, p.terragrunt = filepath.Join(bin, "castle"), filepath.Join(bin, "terragrunt")
	for _, path := range []string{p.castle, p.terragrunt} {
		if _, failed := os.Stat(path); failed != nil {
			err = errors.Join(err, fmt.Errorf("%w; run `make bench`, which builds it", failed))
		}
	}
	found, failed := exec.LookPath("terraform")
	if failed != nil {
		return p, errors.Join(err, failed)
	}
	p.terraform, failed = filepath.EvalSymlinks(found)
	return p, errors.Join(err, failed)
}
