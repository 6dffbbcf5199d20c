// Package objectstore runs the lab's real S3 server, the program lab-s3 beside castle-lab. Its data lies in a
// folder. It listens on loopback without TLS; whoever serves its Handler adds the name and the certificate
// that clients expect.
package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Program is the name of the program that is the S3 server.
const Program = "lab-s3"

// Options configure a server.
type Options struct {
	Program              string     // lab-s3
	Dir                  string     // new and private
	Address              netip.Addr // where it listens, at a port of its own
	Bucket, Region       string
	AccessKey, SecretKey string // of the only account
	Log                  io.Writer
}

// Server is an S3 server that runs.
type Server struct {
	options Options
	address string
	process *exec.Cmd
	done    chan struct{}
}

// Start starts the server with an empty bucket; it lasts until Close, or as long as this process.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{options: o, done: make(chan struct{})}
	temporary := filepath.Join(o.Dir, "tmp")
	if err := errors.Join(os.MkdirAll(s.Folder(), 0o700), os.Mkdir(temporary, 0o700)); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(o.Address, 0).String())
	if err != nil {
		return nil, err
	}
	s.address = l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	s.process = exec.Command(o.Program, "--address", s.address, "--folder", filepath.Dir(s.Folder()),
		"--region", o.Region)
	s.process.Env = []string{"HOME=" + o.Dir, "TMPDIR=" + temporary,
		"ROOT_ACCESS_KEY=" + o.AccessKey, "ROOT_SECRET_KEY=" + o.SecretKey}
	s.process.Stdout, s.process.Stderr = o.Log, o.Log
	// A Ctrl-C is not meant for it, and it ends with the lab, whatever happens to that.
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := s.start(); err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	if err := s.answers(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("s3: %w", err), s.Close())
	}
	return s, nil
}

// start runs the server from a thread that lasts as long as it: the kernel ends a child with the thread that
// made it.
func (s *Server) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := s.process.Start()
		started <- err
		if err == nil {
			s.process.Wait() //nolint:errcheck // it is killed in the end
			close(s.done)
		}
	}()
	return <-started
}

// answers waits until the server takes requests.
func (s *Server) answers(ctx context.Context) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/healthz", nil)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(r); err == nil {
			return answer.Body.Close()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.done:
			return errors.New("the process ended before it was ready")
		case <-again.C:
		}
	}
}

// Folder is where the objects of the bucket lie, one file each.
func (s *Server) Folder() string { return filepath.Join(s.options.Dir, "objects", s.options.Bucket) }

// Handler answers as this server, at whatever name and port it is called.
func (s *Server) Handler() http.Handler {
	target := &url.URL{Scheme: "http", Host: s.address}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // the client has signed it
	}}
}

// Close ends the server. Its folder stays.
func (s *Server) Close() error {
	if err := s.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.done
	return nil
}
