// Command lab-s3 is a real S3 server for the lab and for tests: versitygw, with a folder as its storage.
//
//	lab-s3 --address IP:PORT --folder FOLDER [--region REGION]
//
// Its only account comes from the environment: ROOT_ACCESS_KEY and ROOT_SECRET_KEY. Each folder in FOLDER is
// a bucket. What S3 knows of an object besides its content lies in meta-of-FOLDER, so that the file system
// needs no extended attributes. It serves until it gets SIGINT or SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab-s3:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("lab-s3", flag.ContinueOnError)
	address := flags.String("address", "", "IP:PORT")
	folder := flags.String("folder", "", "the storage")
	region := flags.String("region", "", "the region that requests are signed for; us-east-1 if empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	side := filepath.Join(filepath.Dir(*folder), "meta-of-"+filepath.Base(*folder)) // not the same beginning
	if err := os.Mkdir(side, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	store, err := meta.NewSideCar(side)
	if err != nil {
		return err
	}
	backend, err := posix.New(*folder, store, posix.PosixOpts{SideCarDir: side})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess: os.Getenv("ROOT_ACCESS_KEY"), RootUserSecret: os.Getenv("ROOT_SECRET_KEY"),
		Region: *region,
		Ports:  []string{*address}, MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
		Quiet: true, KeepAlive: true, HealthPath: "/healthz",
	})
}
