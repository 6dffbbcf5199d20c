package tailscale

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// refusal is an error of the API: https://tailscale.com/api.
type refusal struct {
	status  int
	Message string `json:"message"`
}

func (r refusal) Error() string { return r.Message }

// longest is how long an auth key may live, which is also the default.
const longest = 90 * 24 * time.Hour

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v2/oauth/token", s.token)
	mux.HandleFunc("POST /machine/register", s.register)
	for pattern, handle := range map[string]func(*http.Request) (any, error){
		"POST /api/v2/tailnet/{tailnet}/keys":        s.createKey,
		"GET /api/v2/tailnet/{tailnet}/keys/{id}":    s.getKey,
		"DELETE /api/v2/tailnet/{tailnet}/keys/{id}": s.deleteKey,
		"GET /api/v2/tailnet/{tailnet}/devices":      s.listDevices,
		"DELETE /api/v2/device/{id}":                 s.deleteDevice,
	} {
		mux.HandleFunc(pattern, s.authorized(handle))
	}
	return mux
}

// token is the endpoint for client credentials: https://tailscale.com/kb/1215/oauth-clients.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if id != s.config.ClientID ||
		subtle.ConstantTimeCompare([]byte(secret), []byte(s.config.ClientSecret)) == 0 {
		answer(w, http.StatusUnauthorized, refusal{Message: "API token invalid"})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	token := "tskey-api-" + random()
	s.tokens[token] = true
	answer(w, http.StatusOK, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600,
		"scope": "auth_keys devices:core"})
}

// register is how a machine joins: the JSON of tailcfg.RegisterRequest, without the encryption around it.
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Auth     struct{ AuthKey string }
		Hostinfo struct{ Hostname string }
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		answer(w, http.StatusBadRequest, refusal{Message: "invalid JSON"})
		return
	}
	device, err := s.Register(body.Auth.AuthKey, body.Hostinfo.Hostname)
	if err != nil {
		answer(w, http.StatusOK, map[string]any{"Error": err.Error()})
		return
	}
	answer(w, http.StatusOK, map[string]any{"MachineAuthorized": device.Authorized})
}

func (s *Server) authorized(handle func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.tokens[token] {
			answer(w, http.StatusUnauthorized, refusal{Message: "API token invalid"})
			return
		}
		result, err := handle(r)
		if why, is := err.(refusal); is { //nolint:errorlint // made here
			answer(w, why.status, why)
			return
		}
		answer(w, http.StatusOK, result)
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) //nolint:errcheck // the client has gone
}

// create are the capabilities of an auth key.
type create struct {
	Reusable      bool     `json:"reusable"`
	Ephemeral     bool     `json:"ephemeral"`
	Preauthorized bool     `json:"preauthorized"`
	Tags          []string `json:"tags"`
}

type capabilities struct {
	Devices struct {
		Create create `json:"create"`
	} `json:"devices"`
}

func (s *Server) createKey(r *http.Request) (any, error) {
	var body struct {
		Capabilities  capabilities `json:"capabilities"`
		ExpirySeconds int64        `json:"expirySeconds"`
		Description   string       `json:"description"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, refusal{http.StatusBadRequest, "invalid JSON"}
	}
	c := body.Capabilities.Devices.Create
	for _, tag := range c.Tags {
		if !slices.Contains(s.config.Tags, tag) {
			return nil, refusal{http.StatusBadRequest, fmt.Sprintf("requested tags %v are invalid or not "+
				"permitted", c.Tags)}
		}
	}
	if len(c.Tags) == 0 { // an OAuth client is nobody to whom a device could belong
		return nil, refusal{http.StatusBadRequest, "tailnet-owned auth key must have tags set"}
	}
	lives := longest
	if body.ExpirySeconds > 0 {
		lives = time.Duration(body.ExpirySeconds) * time.Second
	}
	if lives > longest {
		return nil, refusal{http.StatusBadRequest, "expirySeconds must be at most 7776000"}
	}
	id, now := "k"+random()+"CNTRL", s.config.Now().UTC().Truncate(time.Second)
	k := &key{id: id, secret: "tskey-auth-" + id + "-" + random(), description: body.Description,
		reusable: c.Reusable, ephemeral: c.Ephemeral, preauthorized: c.Preauthorized, tags: c.Tags,
		created: now, expires: now.Add(lives)}
	s.keys[id] = k
	shown := k.shown(now)
	shown["key"] = k.secret
	return shown, nil
}

// shown is a key without its value.
func (k *key) shown(now time.Time) map[string]any {
	var c capabilities
	c.Devices.Create = create{k.reusable, k.ephemeral, k.preauthorized, k.tags}
	return map[string]any{"id": k.id, "keyType": "auth", "description": k.description, "created": k.created,
		"expires": k.expires, "expirySeconds": int64(k.expires.Sub(k.created).Seconds()),
		"capabilities": c, "invalid": now.After(k.expires)}
}

func (s *Server) getKey(r *http.Request) (any, error) {
	k := s.keys[r.PathValue("id")]
	if k == nil {
		return nil, refusal{http.StatusNotFound, "not found"}
	}
	return k.shown(s.config.Now()), nil
}

func (s *Server) deleteKey(r *http.Request) (any, error) {
	if s.keys[r.PathValue("id")] == nil {
		return nil, refusal{http.StatusNotFound, "not found"}
	}
	delete(s.keys, r.PathValue("id"))
	return nil, nil
}

func (s *Server) listDevices(*http.Request) (any, error) {
	all := []Device{}
	for _, d := range s.devices {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return map[string]any{"devices": all}, nil
}

func (s *Server) deleteDevice(r *http.Request) (any, error) {
	if s.devices[r.PathValue("id")] == nil {
		return nil, refusal{http.StatusNotFound, "no manageable device matching your request was found"}
	}
	delete(s.devices, r.PathValue("id"))
	return nil, nil
}
