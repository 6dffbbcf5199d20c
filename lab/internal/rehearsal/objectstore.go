package rehearsal

import (
	"encoding/json"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
)

// bucket finds the S3 bucket with the backups that a stage names in its inputs.
func (s *survey) bucket(inputs []map[string]cty.Value) error {
	for _, values := range inputs {
		text := func(name string) (found string) {
			each(name, values[name], func(_, text string) { found = text })
			return found
		}
		if endpoint := text("s3_endpoint"); endpoint != "" {
			return s.keep(endpoint, text("s3_bucket"), text("s3_region"))
		}
	}
	return nil
}

// keep has the lab serve a bucket at an endpoint. Its account is what the lab makes up for the secrets
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the cluster.
func (s *survey) keep(endpoint, bucket, region string) error {
	o := &datacenter.ObjectStore{Endpoint: endpoint, Bucket: bucket, Region: region}
	if s.LocalSecrets != "" {
		var secrets map[string]string
		if err := json.Unmarshal([]byte(s.LocalSecrets), &secrets); err != nil {
			return err
		}
		o.AccessKey, o.SecretKey = secrets["AWS_ACCESS_KEY_ID"], secrets["AWS_SECRET_ACCESS_KEY"]
	}
	s.ObjectStore = o
	if !slices.Contains(s.Network.Hosts, o.Host()) {
		s.Network.Hosts = append(s.Network.Hosts, o.Host())
	}
	return nil
}
