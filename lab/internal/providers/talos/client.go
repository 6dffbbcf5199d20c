package talos

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

const (
	firstPause = 500 * time.Millisecond
	mostPause  = 10 * time.Second
)

// clientConfig is the client_configuration among v as a talosconfig.
func clientConfig(name string, v plugin.Values) (*clientconfig.Config, error) {
	given := v.Object("client_configuration")
	var decoded [3][]byte
	for i, part := range []string{"ca_certificate", "client_certificate", "client_key"} {
		b, err := base64.StdEncoding.DecodeString(given.String(part))
		if err != nil {
			return nil, err
		}
		decoded[i] = b
	}
	return clientconfig.NewConfig(name, nil, decoded[0], &x509.PEMEncodedCertificateAndKey{Crt: decoded[1],
		Key: decoded[2]}), nil
}

// call calls do with a client for v's node, through v's endpoint, until it succeeds or the limit
// expires.
func call(ctx context.Context, v plugin.Values, limit time.Duration,
	do func(context.Context, *client.Client) error) error {
	config, err := clientConfig("dynamic", v)
	if err != nil {
		return err
	}
	return repeat(ctx, limit, func(ctx context.Context) error {
		return attempt(ctx, config, v.String("endpoint"), v.String("node"), do)
	})
}

// repeat tries again and again until do succeeds, fails for good or limit is
// over. It returns the last error.
func repeat(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	attempts, stop := context.WithTimeout(ctx, limit)
	defer stop()
	var last error
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		err := do(attempts)
		if err == nil || status.Code(err) == codes.InvalidArgument {
			return err
		}
		if last == nil || attempts.Err() == nil {
			last = err // what the deadline cut off says less than the answer before it
		}
		select {
		case <-time.After(pause):
		case <-attempts.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return last
		}
	}
}

func attempt(ctx context.Context, config *clientconfig.Config, endpoint, node string,
	do func(context.Context, *client.Client) error) (err error) {
	ctx = client.WithNode(ctx, node)
	//nolint:gosec // maintenance mode serves a self-signed certificate
	c, err := client.New(ctx, client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}),
		client.WithEndpoints(endpoint))
	if err != nil {
		return err
	}
	if _, err := c.Disks(ctx); err != nil {
		if err := c.Close(); err != nil {
			return err
		}
		if c, err = client.New(ctx, client.WithConfig(config), client.WithEndpoints(endpoint)); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return do(ctx, c)
}
