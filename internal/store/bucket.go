package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	gcaws "gocloud.dev/aws"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"
)

// bucket is a store in a bucket of S3 or Azure.
type bucket struct {
	// connect returns the bucket. It is called before the first request: it may look for credentials.
	connect func(ctx context.Context) (*blob.Bucket, error)
	// ready reports, before each request, whether there are credentials; nil if connect does.
	ready func(ctx context.Context) error
	// erase deletes a key; nil if gocloud does.
	erase func(ctx context.Context, key string) error
	class func(err error) class

	mu      sync.Mutex
	opened  *blob.Bucket
	answers atomic.Bool // the bucket is known to exist
}

// credentialsError reports that there are no credentials.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return "no credentials: " + e.err.Error() }

func (e *credentialsError) Unwrap() error { return e.err }

func openS3(ctx context.Context, u *url.URL) (backend, error) {
	name, prefix, err := bucketOf(u)
	if err == nil {
		err = onlyParameters(u, "region", "endpoint", "profile", "role", "s3ForcePathStyle", "use_path_style",
			"dualstack", "fips", "accelerate", "ssetype", "kmskeyid", "request_checksum_calculation",
			"response_checksum_validation")
	}
	if err != nil {
		return nil, err
	}
	query, flags := u.Query(), map[string]bool{}
	for _, flag := range []string{"s3ForcePathStyle", "use_path_style", "accelerate"} {
		if value := query.Get(flag); value != "" {
			if flags[flag], err = strconv.ParseBool(value); err != nil {
				return nil, fmt.Errorf("%s must be true or false", flag)
			}
		}
		query.Del(flag)
	}
	options := &s3blob.Options{EncryptionType: types.ServerSideEncryption(query.Get("ssetype")),
		KMSEncryptionID: query.Get("kmskeyid")}
	query.Del("ssetype")
	query.Del("kmskeyid")
	config, err := gcaws.V2ConfigFromURLParams(ctx, query)
	if err != nil {
		return nil, err
	}
	if config.Region == "" {
		return nil, errors.New("it needs ?region=… (environment: AWS_REGION)")
	}
	config.Logger = logging.Nop{} // the SDK would warn on standard error
	options.RequestChecksumCalculation = config.RequestChecksumCalculation
	client := s3.NewFromConfig(config, func(o *s3.Options) {
		o.Retryer = aws.NopRetryer{}
		o.UsePathStyle = flags["s3ForcePathStyle"] || flags["use_path_style"]
		o.UseAccelerate = flags["accelerate"]
	})
	return &bucket{class: ofS3,
		connect: func(ctx context.Context) (*blob.Bucket, error) {
			b, err := s3blob.OpenBucket(ctx, client, name, options)
			return prefixed(b, prefix), err
		},
		ready: func(ctx context.Context) error { // from the SDK's cache
			_, err := client.Options().Credentials.Retrieve(ctx)
			return err
		},
		erase: func(ctx context.Context, key string) error { // gocloud's would ask first whether it is there
			_, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &name, Key: new(prefix + key)})
			return err
		},
	}, nil
}

func openAzure(_ context.Context, u *url.URL) (backend, error) {
	name, prefix, err := bucketOf(u)
	if err == nil {
		err = onlyParameters(u, "domain", "protocol", "cdn", "localemu", "storage_account")
	}
	if err == nil && u.Query().Get("storage_account") == "" {
		err = required("it needs ?storage_account=…", "AZURE_STORAGE_ACCOUNT",
			"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGEBLOB_CONNECTIONSTRING")
	}
	where := (&url.URL{Scheme: "azblob", Host: name, RawQuery: u.RawQuery}).String()
	return &bucket{class: ofAzure, connect: func(ctx context.Context) (*blob.Bucket, error) {
		b, err := blob.OpenBucket(ctx, where)
		if err != nil {
			return nil, &credentialsError{err}
		}
		return prefixed(b, prefix), nil
	}}, err
}

func prefixed(b *blob.Bucket, prefix string) *blob.Bucket {
	if b == nil || prefix == "" {
		return b
	}
	return blob.PrefixedBucket(b, prefix)
}

// get returns the bucket for a request.
func (b *bucket) get(ctx context.Context) (*blob.Bucket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ready != nil {
		if err := b.ready(ctx); err != nil {
			return nil, &credentialsError{err}
		}
	}
	var err error
	if b.opened == nil {
		b.opened, err = b.connect(ctx)
	}
	return b.opened, err
}

func (b *bucket) read(ctx context.Context, key string) ([]byte, error) {
	opened, err := b.get(ctx)
	if err != nil {
		return nil, err
	}
	value, err := opened.ReadAll(ctx, key)
	return value, b.settled(ctx, opened, err)
}

func (b *bucket) create(ctx context.Context, key string, value []byte) error {
	opened, err := b.get(ctx)
	if err != nil {
		return err
	}
	// One request per value up to 16 MiB. If ctx ends, the writer is cancelled before it is closed.
	err = opened.Upload(ctx, key, bytes.NewReader(value), &blob.WriterOptions{IfNotExist: true,
		ContentType: "application/octet-stream"})
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return fs.ErrExist
	}
	return err
}

func (b *bucket) list(ctx context.Context, prefix string) ([]string, error) {
	opened, err := b.get(ctx)
	if err != nil {
		return nil, err
	}
	var keys []string
	for all := opened.List(&blob.ListOptions{Prefix: prefix}); ; {
		object, err := all.Next(ctx)
		switch {
		case err == io.EOF: //nolint:errorlint // a broken connection wraps it
			b.answers.Store(true)
			return keys, nil
		case err != nil:
			return nil, err
		}
		keys = append(keys, object.Key)
	}
}

func (b *bucket) remove(ctx context.Context, key string) error {
	opened, err := b.get(ctx)
	if err != nil {
		return err
	}
	if b.erase != nil {
		return b.erase(ctx, key)
	}
	return b.settled(ctx, opened, opened.Delete(ctx, key))
}

// settled turns a system's answer that there is no such key into fs.ErrNotExist. Not all of them tell a
// missing key from a missing bucket, so that the first such answer leads to a request for the bucket.
func (b *bucket) settled(ctx context.Context, opened *blob.Bucket, err error) error {
	switch {
	case err == nil:
		b.answers.Store(true)
		return err
	case gcerrors.Code(err) != gcerrors.NotFound || b.class(err).kind != Missing || namesBucket(err):
		return err
	case !b.answers.Load():
		if _, _, err := opened.ListPage(ctx, blob.FirstPageToken, 1, nil); err != nil {
			return err
		}
		b.answers.Store(true)
	}
	return fs.ErrNotExist
}

func (b *bucket) classify(err error) class {
	var credentials *credentialsError
	if errors.As(err, &credentials) {
		return class{kind: Refused}
	}
	return b.class(err)
}

func (b *bucket) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened == nil {
		return nil
	}
	return b.opened.Close()
}
