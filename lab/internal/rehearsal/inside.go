package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
	"github.com/ephemeral-castle/castle/lab/internal/front"
	"github.com/ephemeral-castle/castle/lab/internal/namespace"
)

// exitLeftovers is castle's code for "something is left over".
const exitLeftovers = 6

// Main runs the inner half of a rehearsal and returns its exit code.
func Main(ctx context.Context, file string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	var p plan
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	// The file may name a secret and is not needed any more, with --keep or without.
	if err := errors.Join(json.Unmarshal(content, &p), os.Remove(file)); err != nil {
		return 0, err
	}
	proof, err := namespace.Prove(p.Outside)
	if err != nil {
		return 0, err
	}
	// castle handles interrupts; the round ends with castle.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d, err := p.datacenter(ctx, proof)
	if err != nil {
		return 0, fmt.Errorf("datacenter: %w", err)
	}
	defer d.Close()
	r := &round{plan: p, stdin: stdin, stdout: stdout, stderr: stderr, datacenter: d, environ: os.Environ()}
	for name, value := range d.Credentials() {
		r.environ = append(r.environ, name+"="+value)
	}
	return r.run(ctx)
}

func (p *plan) datacenter(ctx context.Context, proof namespace.Proof) (*datacenter.Datacenter, error) {
	authority, err := front.NewAuthority()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.path(bundleName), authority.Bundle(), 0o644); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(p.path("datacenter.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { log.Close() }) //nolint:errcheck // nothing is lost
	// Kubernetes' libraries would otherwise write between castle's lines.
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))))
	return datacenter.Start(ctx, datacenter.Config{
		Proof: proof, Dir: p.Work, Front: netip.MustParseAddr(frontAddress),
		Endpoints: p.Survey.Network.Endpoints, Authority: authority,
		Speed: p.Options.Speed, Faults: p.Faults, Hosts: p.Survey.Hosts, Secrets: p.Survey.Secrets,
		Schematics: p.Survey.Schematics,
		Branches:   p.Survey.Branches, Tags: p.Survey.Tags, Keys: p.Survey.Keys,
		TailnetTags:  p.Survey.TailnetTags,
		ProxmoxToken: p.Survey.ProxmoxToken,
		Machines:     p.Survey.Machines, Vault: p.Survey.Vault, Cloud: p.Survey.Cloud,
		ObjectStore: p.Survey.ObjectStore, Both: p.Survey.Both,
		Repository: p.Survey.Repository, Controllers: p.Controllers, Log: log,
		Sources: p.Survey.Sources, Missing: p.Survey.Missing, Charts: p.Options.Charts,
	})
}

// round holds the steps of one rehearsal.
type round struct {
	plan           plan
	stdin          io.Reader
	stdout, stderr io.Writer
	datacenter     *datacenter.Datacenter
	environ        []string
	report         report
}

func (r *round) run(ctx context.Context) (int, error) {
	code, err := r.steps(ctx)
	if err != nil {
		return 0, err
	}
	left := r.datacenter.Leftovers()
	r.report.Leftovers = left
	whole := len(r.plan.Options.Command) == 0
	missing := r.datacenter.Missing()
	if code == 0 && (whole && len(left) != 0 || len(missing) != 0) {
		code = exitLeftovers
	}
	r.report.Result = "ok"
	if code != 0 {
		r.report.Result = "failed"
	}
	if err := r.readStages(); err != nil {
		return 0, err
	}
	if err := r.readRun(); err != nil { // a command may write anything into the state directory
		fmt.Fprintf(r.stderr, "castle: the report has no critical path: %v\n", err)
	}
	r.summary(left, missing)
	return code, r.publishable(r.plan.path("report.json"))
}

// steps runs the given command, or the round of create, status, create and destroy, and stops at what fails
// first. An edit is rolled out before the second create, which changes nothing.
func (r *round) steps(ctx context.Context) (int, error) {
	if len(r.plan.Options.Command) != 0 {
		return r.step(ctx, r.plan.Options.Command)
	}
	o, cluster := r.plan.Options, r.plan.Survey.Name+"/"+r.plan.Survey.Platform
	again := [][]string{{"create", cluster}}
	if o.Edit != "" {
		again = [][]string{{"plan", cluster}, append([]string{"rollout", cluster, "--yes"}, o.Flags...),
			{"create", cluster}, {"status", cluster}}
	}
	code, err := r.castle(ctx, []string{"create", cluster}, []string{"status", cluster})
	if err == nil && code == 0 && o.Edit != "" {
		err = r.editing(ctx)
	}
	if code != 0 || err != nil {
		return code, err
	}
	if code, err := r.castle(ctx, again...); code != 0 || err != nil {
		return code, err
	}
	changed, err := r.changedAgain()
	if err != nil {
		return 0, err
	}
	if len(changed) != 0 {
		fmt.Fprintf(r.stderr, "castle: the second create changed %s; it must change nothing\n",
			strings.Join(changed, ", "))
		return 1, nil
	}
	return r.castle(ctx, []string{"destroy", cluster, "--yes"})
}

// castle runs commands of castle, up to the first that fails.
func (r *round) castle(ctx context.Context, commands ...[]string) (int, error) {
	for _, args := range commands {
		code, err := r.step(ctx, append([]string{"castle", "-C", r.plan.Options.Directory}, args...))
		if code != 0 || err != nil {
			return code, err
		}
	}
	return 0, nil
}

func (r *round) step(ctx context.Context, args []string) (int, error) {
	shown := strings.Join(args, " ")
	if args[0] == "castle" && len(args) > 3 && args[1] == "-C" {
		shown = "castle " + strings.Join(args[3:], " ")
	}
	fmt.Fprintf(r.stderr, "\n==> %s\n", shown)
	path, err := lookPath(args[0], process.Getenv(r.environ, "PATH"))
	if err != nil {
		fmt.Fprintf(r.stderr, "castle: %v\n", err)
		return 127, nil
	}
	c := exec.CommandContext(ctx, path, args[1:]...)
	c.Args[0] = args[0]
	c.Dir, c.Env = r.plan.Options.Directory, r.environ
	c.Stdin, c.Stdout, c.Stderr = r.stdin, r.stdout, r.stderr
	began := time.Now()
	err = c.Run()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if code = exit.ExitCode(); code < 0 {
			code = 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
		}
	} else if err != nil {
		return 0, err
	}
	r.report.Steps = append(r.report.Steps, reportStep{shown, code, seconds(time.Since(began))})
	return code, nil
}

// lookPath finds a command on the PATH that the command will have.
func lookPath(name, path string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return exec.LookPath(name)
	}
	for dir := range strings.SplitSeq(path, ":") {
		if found, err := exec.LookPath(dir + "/" + name); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}
