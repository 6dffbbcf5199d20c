package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Bucket is a bucket of S3, or of a server with its API, and the account that may use it. Other than with a
// URL, nothing comes from the environment.
type Bucket struct {
	Endpoint             string // host or host:port, with TLS
	Region, Name         string
	AccessKey, SecretKey string
	Authorities          []byte // certificates to trust, in PEM; nil: those of the system
}

// URL returns the address of the bucket, without anything secret.
func (b Bucket) URL() string { return "https://" + b.Endpoint + "/" + b.Name }

// OpenBucket returns the bucket as a store. It makes no request.
func OpenBucket(b Bucket) (Store, error) {
	client := awshttp.NewBuildableClient()
	if b.Authorities != nil {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(b.Authorities) {
			return nil, fmt.Errorf("%s: no certificate in the file of authorities", b.URL())
		}
		client = client.WithTransportOptions(func(t *http.Transport) {
			t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		})
	}
	account := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: b.AccessKey, SecretAccessKey: b.SecretKey}, nil
	})
	opened := &bucket{name: b.Name, client: s3.New(s3.Options{
		Region: b.Region, BaseEndpoint: aws.String("https://" + b.Endpoint), UsePathStyle: true,
		Credentials: account, HTTPClient: client, Retryer: aws.NopRetryer{},
	})}
	return &retried{url: b.URL(), backend: opened, limit: limit}, nil
}
