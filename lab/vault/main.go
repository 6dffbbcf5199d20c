// Command lab-vault is a real Vault for rehearsals and tests: Vault's own core, with the engines
// that castle's stages use, all of it in memory.
//
//	lab-vault --address IP:PORT --certificate FILE --key FILE --keys FILE
//
// It initialises and unseals itself. It writes the operator's keys (the root token and the unseal
// key) to the new file --keys with mode 0600. Then it prints its address to stdout in one line of
// JSON. It ends when its standard input ends, so it never outlives its parent process. Tests
// provoke the faults of a Vault through its own API: sys/seal, a token with a short life, a mount.
//
// Vault is under the Business Source License 1.1. This program is for tests on one's own machine;
// it is never part of a release of castle.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab-vault:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("lab-vault", flag.ContinueOnError)
	address := flags.String("address", "", "where to listen, `IP:PORT`")
	certificate := flags.String("certificate", "", "`FILE` with the server's certificate")
	key := flags.String("key", "", "`FILE` with its private key")
	keys := flags.String("keys", "", "new `FILE` for the root token and the unseal key")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *address == "" || *certificate == "" || *key == "" || *keys == "" {
		return errors.New("--address, --certificate, --key and --keys are needed")
	}
	core, operator, err := start(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer core.Shutdown() //nolint:errcheck // nothing outlives it
	if err := writeNew(*keys, operator); err != nil {
		return err
	}
	listening, err := serve(core, *address, *certificate, *key)
	if err != nil {
		return err
	}
	defer listening.Close() //nolint:errcheck // it ends here
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"address": listening.URL,
		"version": version}); err != nil {
		return err
	}
	orphaned := make(chan struct{})
	go func() {
		defer close(orphaned)
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // however it ends
	}()
	select {
	case <-ctx.Done():
	case <-orphaned:
	case err := <-listening.failed:
		return err
	}
	return nil
}

// writeNew writes a new file that only its owner can read; it never overwrites a file.
func writeNew(path string, content any) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(content), f.Close())
}
