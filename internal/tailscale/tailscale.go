// Package tailscale is castle's view of a tailnet: whether the machines of a cluster have joined it, and the
// removal of their devices. Terraform makes the keys with which machines join; the devices that result are in
// no state. Each key admits one device. So castle removes a device only if it has the key's host name and
// tags, was made in the hour of the key, and is the only one. A name alone proves nothing.
package tailscale

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/httpjson"
)

// keyType is the resource of a key.
const keyType = "tailscale_tailnet_key"

// tailnet is the one of an OAuth client.
type tailnet struct{ api, id, secret string }

// device is a machine of the tailnet: https://tailscale.com/api#tag/devices.
type device struct {
	ID         string   `json:"nodeId"`
	Name       string   `json:"name"` // NAME.TAILNET.ts.net, which begins with NAME-1 where NAME is taken
	Hostname   string   `json:"hostname"`
	Authorized bool     `json:"authorized"`
	Connected  bool     `json:"connectedToControl"`
	Tags       []string `json:"tags"`
	Created    string   `json:"created"` // empty for devices of others
}

func (t tailnet) client(ctx context.Context) *httpjson.Client {
	config := clientcredentials.Config{ClientID: t.id, ClientSecret: t.secret,
		TokenURL: t.api + "/api/v2/oauth/token"}
	return &httpjson.Client{Base: t.api + "/api/v2/", Header: http.Header{}, HTTP: *config.Client(ctx)}
}

// failed names what the API has refused. The answer to a login may repeat credentials.
func (t tailnet) failed(what string, err error) error {
	switch refused, is := errors.AsType[*oauth2.RetrieveError](err); {
	case err == nil:
		return nil
	case is:
		return fmt.Errorf("the tailnet at %s: it refuses the OAuth client (%d); check "+
			"TAILSCALE_OAUTH_CLIENT_ID and TAILSCALE_OAUTH_CLIENT_SECRET", t.api, refused.Response.StatusCode)
	case httpjson.Status(err) == http.StatusForbidden:
		return fmt.Errorf("the tailnet at %s: %s: %w; give the OAuth client the scope devices:core",
			t.api, what, err)
	}
	return fmt.Errorf("the tailnet at %s: %s: %w", t.api, what, err)
}

func (t tailnet) devices(ctx context.Context) ([]device, error) {
	var answer struct {
		Devices []device `json:"devices"`
	}
	err := t.client(ctx).Do(ctx, http.MethodGet, "tailnet/-/devices", nil, &answer)
	return answer.Devices, t.failed("it does not list its devices", err)
}

func (t tailnet) delete(ctx context.Context, d device) error {
	err := t.client(ctx).Do(ctx, http.MethodDelete, "device/"+d.ID, nil, nil)
	if httpjson.NotFound(err) {
		return nil
	}
	return t.failed("it does not delete the device "+d.Hostname, err)
}

// attributes are the arguments of the gate and the preflight.
func attributes(devices gate.Attribute) map[string]gate.Attribute {
	text := func(help string) gate.Attribute {
		return gate.Attribute{Type: cty.String, Required: true, Help: help}
	}
	return map[string]gate.Attribute{
		"api":           text(`URL of Tailscale's API, "https://api.tailscale.com".`),
		"client_id":     text("An OAuth client with the scope devices:core."),
		"client_secret": text("Its secret."),
		"devices":       devices,
	}
}

func tailnetOf(v gate.Values) (tailnet, []string, error) {
	var names []string
	err := v.Decode("devices", &names)
	return tailnet{v.String("api"), v.String("client_id"), v.String("client_secret")}, names, err
}

var hostnames = gate.Attribute{Type: cty.List(cty.String), Required: true, Help: "Host names of the devices."}

// GateTypes returns the type of gate that a tailnet answers.
func GateTypes() []gate.Type {
	given := attributes(hostnames)
	given["tags"] = gate.Attribute{Type: cty.Map(cty.List(cty.String)), Required: true,
		Help: "By host name, the tags of the device's key. One of somebody else's has the name alone."}
	given["expires"] = gate.Attribute{Type: cty.Map(cty.String),
		Help: "By host name, when the key of a device expires: until then, it need not have joined."}
	return []gate.Type{{
		Name:       "tailnet_devices",
		Summary:    "each machine is a device of the tailnet, authorized and connected, or may still join",
		Attributes: given,
		New: func(name string, _ gate.Target, v gate.Values) (gate.Gate, error) {
			t, names, err := tailnetOf(v)
			var tags map[string][]string
			var expires map[string]string
			err = errors.Join(err, v.Decode("tags", &tags), v.Decode("expires", &expires))
			return gate.Gate{Name: name, Check: func(ctx context.Context) error {
				return t.joined(ctx, names, tags, expires)
			}}, err
		},
	}}
}

// joined is an error that names each device which is missing, or may not be reached yet. With the times when
// keys expire, it names those alone that cannot join any more.
func (t tailnet) joined(ctx context.Context, names []string, tags map[string][]string,
	expires map[string]string) error {
	all, err := t.devices(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range names {
		why := "has not joined the tailnet yet"
		if expires != nil {
			why = expired(expires[name])
		}
		for _, d := range all {
			switch {
			case !d.is(name, tags[name]):
			case expires != nil, d.Authorized && d.Connected && !d.renamed():
				why = ""
			case why == "":
			case !d.Authorized:
				why = "waits for somebody who approves it in Tailscale's admin console"
			case !d.Connected:
				why = "is not connected"
			default:
				why = "is called " + d.Name + ", because another device has its name: delete that one in " +
					"Tailscale's admin console if nobody needs it, and give this one its name"
			}
		}
		if why != "" {
			missing = append(missing, name+" "+why)
		}
	}
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	return nil
}

// expired tells why a machine cannot join any more; "" while its key lives.
func expired(at string) string {
	if moment, err := time.Parse(time.RFC3339, at); err == nil && time.Now().Before(moment) {
		return ""
	}
	if at == "" {
		return "has no key yet"
	}
	return "has not joined the tailnet, and its key has expired (" + at + "); castle create makes another one"
}

// is reports whether a device may be a machine: it has its host name and its tags.
func (d device) is(name string, tags []string) bool {
	without := func(tag string) bool { return !slices.Contains(d.Tags, tag) }
	return d.Hostname == name && len(tags) > 0 && !slices.ContainsFunc(tags, without)
}

// renamed reports whether the tailnet has given a device another name than its host's, which was taken.
func (d device) renamed() bool {
	name, _, _ := strings.Cut(d.Name, ".")
	number, has := strings.CutPrefix(name, d.Hostname+"-")
	return has && strings.Trim(number, "0123456789") == ""
}

// PreflightTypes returns the type of preflight that a tailnet answers.
func PreflightTypes() []gate.PreflightType {
	return []gate.PreflightType{{
		Name: "tailnet_devices",
		Summary: "No device of somebody else's has a machine's name in the tailnet; a destroy removes " +
			"those that the state's keys have admitted",
		Attributes: attributes(hostnames),
		New: func(name string, _ gate.Target, v gate.Values) (gate.Preflight, error) {
			t, names, err := tailnetOf(v)
			inspect := func(ctx context.Context, known []gate.Known,
				_ func(string)) (gate.Inspection, error) {
				return t.inspect(ctx, names, known)
			}
			revoke := func(ctx context.Context, known []gate.Known, _ func(string)) error {
				return t.remove(ctx, known)
			}
			return gate.Preflight{Name: name, Inspect: inspect, Revoke: revoke, Replaced: t.remove}, err
		},
	}}
}

// inspect finds devices with the names of machines. Without a key in the state, none of them is the stage's:
// after a destroy, there is to be none.
func (t tailnet) inspect(ctx context.Context, names []string, known []gate.Known) (gate.Inspection, error) {
	var found gate.Inspection
	all, err := t.devices(ctx)
	if err != nil {
		return found, err
	}
	for _, name := range names {
		proof := event.OwnedObject{Kind: "device", ID: name, Where: "the tailnet", Gone: true}
		of := slices.IndexFunc(known, func(k gate.Known) bool {
			return k.Type == keyType && k.Attributes["description"] == name
		})
		has := false
		for _, d := range all {
			if d.Hostname != name {
				continue
			}
			proof.Gone, proof.Reason = false, "the tailnet has it"
			proof.Fix = "delete it in Tailscale's admin console"
			if of >= 0 {
				has = has || d.is(name, tagsOf(known[of])) || d.madeInHourOf(known[of]) // with tags by hand
				continue
			}
			found.Foreign = append(found.Foreign, gate.Foreign{
				What: fmt.Sprintf("device %q of the tailnet", name),
				Why: "no key in the state has admitted it: it is somebody else's, or the state was lost; " +
					"the machine would be called " + name + "-1",
				Fixes: []string{"if the state was lost, bring it back: castle state restore",
					"delete it in Tailscale's admin console, if nobody needs it"}})
		}
		if of >= 0 && !has && expired(fmt.Sprint(known[of].Attributes["expires_at"])) != "" {
			found.Lost = append(found.Lost, known[of].Address) // no machine can use this key
		}
		found.Proof = append(found.Proof, proof)
	}
	return found, nil
}

// remove removes the devices that the keys have admitted.
func (t tailnet) remove(ctx context.Context, known []gate.Known) error {
	all, err := t.devices(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range known {
		admitted := xslices.Filter(all, func(d device) bool { return d.admittedBy(k) })
		if len(admitted) > 1 {
			errs = append(errs, fmt.Errorf("the tailnet at %s has %d devices %s that may have joined with "+
				"one key, which admits one; delete in Tailscale's admin console those that nobody needs",
				t.api, len(admitted), admitted[0].Hostname))
			continue
		}
		for _, d := range admitted {
			errs = append(errs, t.delete(ctx, d))
		}
	}
	return errors.Join(errs...)
}

// tagsOf are the tags of a key's device.
func tagsOf(k gate.Known) []string {
	tags, _ := k.Attributes["tags"].([]any) //nolint:errcheck // then it has none
	return xslices.Map(tags, func(tag any) string { return fmt.Sprint(tag) })
}

// admittedBy reports whether a device has joined with a key.
func (d device) admittedBy(k gate.Known) bool {
	tags := tagsOf(k)
	return k.Type == keyType && d.is(fmt.Sprint(k.Attributes["description"]), tags) &&
		len(tags) == len(d.Tags) && d.madeInHourOf(k)
}

// madeInHourOf reports whether a device was made while a key lived.
func (d device) madeInHourOf(k gate.Known) bool {
	at := func(v any) time.Time {
		moment, _ := time.Parse(time.RFC3339, fmt.Sprint(v)) //nolint:errcheck // then it is no time
		return moment
	}
	made, from, until := at(d.Created), at(k.Attributes["created_at"]), at(k.Attributes["expires_at"])
	return !from.IsZero() && !made.Before(from) && !made.After(until)
}
