// Command replay repeats the bootstrap that castle replaced. It creates clusters twice in the lab at real
// speed: by castle, and by a script in the order of TazLab's create.sh, with the same modules, stand-ins and
// delays. Then castle destroys and recreates a cluster whose database has to be there again. It writes all
// beside the times that TazLab published. `make bench-replay` runs it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ephemeral-castle/castle/internal/operation/topology"
)

// stepsPrefix begins the line in which the script inside the lab reports its steps.
const stepsPrefix = "replay: steps "

// graphMark is the line before castle's graph.
const graphMark = "replay: graph"

type options struct {
	clusters, speed, bin, out string
	inside                    string // the cluster of the script; the lab is around it
}

func main() {
	o := options{}
	flag.StringVar(&o.clusters, "clusters", "blue,tazlab", "clusters to create, one after the other")
	flag.StringVar(&o.speed, "speed", "1", "speed of the lab: 1 is that of real machines")
	flag.StringVar(&o.bin, "bin", "bin", "folder of castle and of this program")
	flag.StringVar(&o.out, "out", "bench/REPLAY.md", "file to write")
	flag.StringVar(&o.inside, "script", "", "run the script for this cluster; the lab is around it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) error {
	if o.inside != "" {
		steps, err := runScript(ctx, o.inside)
		if err != nil {
			return err
		}
		text, err := json.Marshal(steps)
		fmt.Printf("%s%s\n", stepsPrefix, text)
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	p := page{speed: o.speed, load: strings.Join(strings.Fields(string(load))[:3], " ")}
	for _, cluster := range strings.Split(o.clusters, ",") {
		m, err := o.measure(ctx, cluster)
		if err != nil {
			return fmt.Errorf("%s: %w", cluster, err)
		}
		p.clusters = append(p.clusters, m)
	}
	again, err := o.measurePhoenix(ctx)
	if err != nil {
		return fmt.Errorf("tazlab, recreated: %w", err)
	}
	text := p.markdown() + again.markdown()
	fmt.Print(text)
	return os.WriteFile(o.out, []byte(text), 0o644)
}

// measure creates a cluster by the script and by castle at the same time, in a lab each: both mostly wait,
// and what else runs on the machine slows both.
func (o options) measure(ctx context.Context, cluster string) (measured, error) {
	m := measured{cluster: cluster}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	scripted := make(chan error)
	go func() {
		var err error
		if m.script, err = o.script(ctx, cluster); err != nil {
			err = fmt.Errorf("script: %w", err)
			stop()
		}
		scripted <- err
	}()
	castle, err := o.castle(ctx, cluster)
	if err != nil {
		err = fmt.Errorf("castle: %w", err)
		stop()
	}
	err = errors.Join(err, <-scripted)
	m.castle = castle
	return m, err
}

// castle creates a cluster in the lab and returns the rehearsal's report.
func (o options) castle(ctx context.Context, cluster string) (report, error) {
	r, output, err := o.reported(ctx, cluster, "sh", "-c",
		`castle create "$1" && echo "$2" && castle graph "$1" -o json`, "sh", cluster, graphMark)
	if err != nil {
		return r, err
	}
	r.layeredSeconds, err = layeredSeconds(output)
	return r, err
}

// reported runs a command in the lab, and returns the rehearsal's report of its last create, and its output.
func (o options) reported(ctx context.Context, cluster string, command ...string) (r report, output string,
	err error) {
	dir, err := os.MkdirTemp("", "replay")
	if err != nil {
		return r, "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "report.json")
	if output, err = o.rehearse(ctx, cluster, []string{"--report", file}, command...); err != nil {
		return r, output, err
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && r.Run == nil {
		err = errors.New("the report has no complete create")
	}
	return r, output, err
}

// layeredSeconds reads castle's graph from the output of its rehearsal.
func layeredSeconds(output string) (float64, error) {
	_, text, _ := strings.Cut(output, "\n"+graphMark+"\n")
	var g topology.Graph
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&g); err != nil {
		return 0, fmt.Errorf("the graph: %w", err)
	}
	d, err := durationsOf(&g)
	if err != nil {
		return 0, err
	}
	layered, err := d.layerByLayer()
	return layered.Seconds(), err
}

// script runs the script in the lab and returns its steps.
func (o options) script(ctx context.Context, cluster string) (steps []step, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	output, err := o.rehearse(ctx, cluster, nil, self, "-script", cluster)
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(strings.NewReader(output)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), stepsPrefix); ok {
			return steps, json.Unmarshal([]byte(text), &steps)
		}
	}
	return nil, errors.New("it has reported nothing")
}

// rehearse runs a command in the lab and returns its output.
func (o options) rehearse(ctx context.Context, cluster string, flags []string, command ...string) (
	string, error) {
	args := append([]string{"rehearse", cluster, "--speed", o.speed}, flags...)
	cmd := exec.CommandContext(ctx, filepath.Join(o.bin, "castle"), append(append(args, "--"), command...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, os.Stderr
	err := cmd.Run()
	return output.String(), err
}
