// Package backupstore reads and writes Longhorn's backups in a bucket of S3: the layout, the files and the
// errors of longhorn/backupstore at ab5179e, which Longhorn v1.12.1 uses. It knows volumes of engine v1 with
// blocks of 2 MiB.
//
// Below PATH/backupstore/volumes/<2>/<2>/VOLUME/ lie volume.cfg, backups/backup_NAME.cfg,
// blocks/<2>/<2>/CHECKSUM.blk and, for a while, locks/lock-ID.lck. The digits of a volume are those of its
// name's checksum. A block has the checksum of its contents before compression, lies there once for all
// backups of the volume, and is deleted with the last backup that names it.
package backupstore

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithymiddleware "github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Agent is a part of the user agent of all requests, by which the lab's S3 server knows them.
const Agent = "longhorn"

// The keys of a backup target's Secret that the lab knows.
const (
	AccessKey = "AWS_ACCESS_KEY_ID"
	SecretKey = "AWS_SECRET_ACCESS_KEY"
	Endpoints = "AWS_ENDPOINTS"
	Cert      = "AWS_CERT"
	// VirtualHosted is "true" for the bucket as a part of the host.
	VirtualHosted = "VIRTUAL_HOSTED_STYLE"
)

// Options say where a store is, and who opens it.
type Options struct {
	URL         string            // s3://BUCKET@REGION/PATH
	Credentials map[string]string // the Secret
	// Speed divides the pauses between attempts, and those for locks; 0 means no time at all.
	Speed float64
}

// Store is the place of backups in a bucket.
type Store struct {
	options        Options
	region, bucket string
	path           string
	client         *http.Client
}

// Open connects with a store, as Longhorn does before each operation.
func Open(ctx context.Context, o Options) (*Store, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "s3" {
		return nil, fmt.Errorf("the lab knows no backup target but S3, and this one is %s", o.URL)
	}
	var missing []string
	for _, key := range []string{AccessKey, SecretKey} {
		if o.Credentials[key] == "" {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("could not backup to %s, missing %v in the secret", u.Scheme, missing)
	}
	s := &Store{options: o, bucket: u.Host, path: strings.TrimLeft(u.Path, "/")}
	if u.User != nil {
		s.region, s.bucket = u.Host, u.User.Username()
	}
	if s.bucket == "" || u.Path == "" {
		return nil, errors.New("invalid URL. Must be either s3://bucket@region/path/, or s3://bucket/path")
	}
	if s.client, err = trusting(o.Credentials[Cert]); err != nil {
		return nil, err
	}
	_, err = s.list(ctx, "")
	return s, err
}

// trusting is a client that trusts the system's authorities, and those in a certificate file.
func trusting(certificates string) (*http.Client, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if certificates != "" && !roots.AppendCertsFromPEM([]byte(certificates)) {
		return nil, fmt.Errorf("failed to append custom certificates: %v", certificates)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // it is one
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	transport.IdleConnTimeout = 5 * time.Second // the client is for one operation
	return &http.Client{Transport: transport}, nil
}

// URL is the store's, as backups name it.
func (s *Store) URL() string {
	at := ""
	if s.region != "" {
		at = "@" + s.region
	}
	return "s3://" + s.bucket + at + "/" + s.path
}

// api is the client of one operation: writes are tried more often than reads.
func (s *Store) api(attempts int, longest time.Duration) *s3.Client {
	given := s.options.Credentials
	pause := retry.NewExponentialJitterBackoff(longest)
	retries := retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = attempts
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, err error) (time.Duration, error) {
			delay, err := pause.BackoffDelay(attempt, err)
			return s.scaled(delay), err
		})
	})
	return s3.New(s3.Options{
		Region: s.region, HTTPClient: s.client, Retryer: retries, Logger: logging.Nop{},
		Credentials: credentials.NewStaticCredentialsProvider(
			given[AccessKey],
			given[SecretKey],
			"",
		),
		BaseEndpoint: optional(given[Endpoints]),
		UsePathStyle: given[VirtualHosted] == "false" ||
			given[VirtualHosted] == "" && given[Endpoints] != "",
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		APIOptions:                 []func(*smithymiddleware.Stack) error{middleware.AddUserAgentKey(Agent)},
	})
}

func (s *Store) reader() *s3.Client { return s.api(5, 20*time.Second) }

func (s *Store) writer() *s3.Client { return s.api(10, 300*time.Second) }

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (s *Store) scaled(d time.Duration) time.Duration {
	if s.options.Speed == 0 {
		return 0
	}
	return time.Duration(float64(d) / s.options.Speed)
}

// pause waits for a time outside.
func (s *Store) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(s.scaled(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// key is where a file lies in the bucket; a folder keeps its slash.
func (s *Store) key(file string) string {
	key := path.Join(s.path, file)
	if strings.HasSuffix(file, "/") {
		key += "/"
	}
	return key
}

// keys are all that begin with a prefix, down to a delimiter.
func (s *Store) keys(ctx context.Context, prefix, delimiter string) (all []string, err error) {
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &prefix, Delimiter: &delimiter}
	pages := s3.NewListObjectsV2Paginator(s.reader(), in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("failed to list objects with param: %+v error: %w", in, explained(err))
		}
		for _, o := range page.Contents {
			all = append(all, aws.ToString(o.Key))
		}
		for _, p := range page.CommonPrefixes {
			all = append(all, strings.TrimSuffix(aws.ToString(p.Prefix), "/"))
		}
	}
	return all, nil
}

// list returns the names in a folder.
func (s *Store) list(ctx context.Context, folder string) ([]string, error) {
	prefix := strings.TrimSuffix(s.key(folder), "/") + "/"
	all, err := s.keys(ctx, prefix, "/")
	var names []string
	for _, key := range all {
		if name := strings.TrimPrefix(key, prefix); name != "" {
			names = append(names, name)
		}
	}
	return names, err
}

// modified is when a file was written last; false if it is not there, or cannot be reached.
func (s *Store) modified(ctx context.Context, file string) (time.Time, bool) {
	key := s.key(file)
	head, err := s.reader().HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil || head.ContentLength == nil {
		return time.Time{}, false
	}
	return head.LastModified.UTC(), true
}

func (s *Store) get(ctx context.Context, file string) (content []byte, err error) {
	key := s.key(file)
	answer, err := s.reader().GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return nil, fmt.Errorf("failed to get object: %v: %w", key, explained(err))
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	return io.ReadAll(answer.Body)
}

func (s *Store) send(ctx context.Context, file string, content []byte) error {
	key := s.key(file)
	_, err := s.writer().PutObject(ctx,
		&s3.PutObjectInput{Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(content)})
	if err != nil {
		return fmt.Errorf("failed to put object in single part: %v: %w", key, explained(err))
	}
	return nil
}

// remove deletes a file, or a folder. Longhorn takes the name for a prefix, and deletes all that has it.
func (s *Store) remove(ctx context.Context, file string) error {
	prefix := s.key(file)
	all, err := s.keys(ctx, prefix, "")
	if err != nil {
		return fmt.Errorf("failed to list objects with prefix %v before removing them: %w", prefix, err)
	}
	var failed []string
	for _, key := range all {
		if _, err := s.reader().DeleteObject(ctx,
			&s3.DeleteObjectInput{Bucket: &s.bucket, Key: &key}); err != nil {
			failed = append(failed, key)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed to delete objects %v", failed)
	}
	return nil
}

// load reads a file of JSON.
func (s *Store) load(ctx context.Context, file string, into any) error {
	if _, there := s.modified(ctx, file); !there {
		return fmt.Errorf("cannot find %v in backupstore", file)
	}
	content, err := s.get(ctx, file)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func (s *Store) save(ctx context.Context, file string, from any) error {
	content, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return s.send(ctx, file, content)
}

// explained is an error of S3 in Longhorn's words.
func explained(err error) error {
	var (
		api      smithy.APIError
		response *smithyhttp.ResponseError
		failed   *smithy.OperationError
	)
	switch {
	case errors.As(err, &api):
		return fmt.Errorf("AWS Error: %s %s", api.ErrorCode(), api.ErrorMessage())
	case errors.As(err, &response):
		return fmt.Errorf("AWS HTTP Error: %d %w", response.HTTPStatusCode(), response.Err)
	case errors.As(err, &failed):
		return fmt.Errorf("AWS Operation Error %s %w", failed.Operation(), failed.Err)
	}
	return err
}
