// Package values reads what Proxmox answers, and what Terraform's states hold of it: the errors of the API,
// the configurations of virtual machines, and the attributes of resources. It checks the arguments of
// preflights. It makes no request.
package values

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/platform"
)

// Attributes are those of a resource in a state that castle reads. One of another type counts as none.
type Attributes struct {
	ID     string   `json:"id"`
	VM     int      `json:"vm_id"`
	Name   string   `json:"name"`
	Node   string   `json:"node_name"`
	MACs   []string `json:"mac_addresses"` // those that the guest agent tells, where there is one
	Tags   []string `json:"tags"`
	SMBIOS []struct {
		UUID string `json:"uuid"`
	} `json:"smbios"`
	Cards []struct {
		MAC string `json:"mac_address"`
	} `json:"network_device"`
	Disks []struct {
		Interface string `json:"interface"`
		Storage   string `json:"datastore_id"`
		Path      string `json:"path_in_datastore"`
	} `json:"disk"`
	EFIDisk  []hiddenDisk `json:"efi_disk"`
	TPMState []hiddenDisk `json:"tpm_state"`
}

// hiddenDisk is one that the guest does not see. The provider notes its storage alone.
type hiddenDisk struct {
	Storage string `json:"datastore_id"`
}

// Left are the volumes of the disks as castle has left them, by option; has are those that the machine has.
func (a Attributes) Left(has map[string]string) map[string]string {
	left := map[string]string{}
	for _, d := range a.Disks {
		if d.Interface != "" && d.Path != "" {
			left[d.Interface] = d.Storage + ":" + d.Path
		}
	}
	for option, disks := range map[string][]hiddenDisk{"efidisk0": a.EFIDisk, "tpmstate0": a.TPMState} {
		for _, d := range disks {
			if left[option] = has[option]; StorageOf(has[option]) != d.Storage {
				left[option] = d.Storage + ":…"
			}
		}
	}
	return left
}

// ReadAttributes decodes the attributes of a resource.
func ReadAttributes(all map[string]any) (a Attributes) {
	if text, err := json.Marshal(all); err == nil {
		_ = json.Unmarshal(text, &a) // it decodes all that it can
	}
	if id, ok := all["vm_id"].(string); ok { // as another module may have it
		a.VM, _ = strconv.Atoi(id) //nolint:errcheck // then it is 0
	}
	return a
}

// GuestID returns the id of the guest that a resource in a state stands for, and whether it stands for one
// at all. A guest whose id the state lacks is 0.
func GuestID(kind string, all map[string]any) (id int, isGuest bool) {
	if !strings.HasPrefix(kind, "proxmox_") {
		return 0, false
	}
	id = ReadAttributes(all).VM
	return id, id != 0 || strings.HasSuffix(kind, "_vm") || strings.HasSuffix(kind, "_container")
}

// Error is an answer other than success.
type Error struct {
	Code   int            // HTTP status; 595 and above: a node does not answer
	Text   string         // from the body's message, else from the reason phrase
	Params map[string]any // the problems of parameters, by name
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%d %s", e.Code, e.Text)
	for _, name := range slices.Sorted(maps.Keys(e.Params)) {
		text += fmt.Sprintf(" %s: %s", name, strings.TrimSpace(fmt.Sprint(e.Params[name])))
	}
	return text
}

// Transient reports whether the same request may succeed later: the node or its proxy cannot answer now, or
// another task holds the guest's lock.
func (e *Error) Transient() bool {
	busy := []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout}
	return slices.Contains(busy, e.Code) || e.Code >= 595 || strings.Contains(e.Text, "can't lock file") ||
		strings.Contains(e.Text, "got lock request timeout")
}

// Passes reports whether the same read may succeed a moment later. A node that does not answer another one,
// and an object that does not exist, are Proxmox' own verdicts.
func (e *Error) Passes() bool {
	kind := KindOf(e)
	return e.Code == http.StatusTooManyRequests || e.Code >= http.StatusInternalServerError &&
		e.Code != http.StatusNotImplemented && kind != Missing && kind != Taken && kind != Unreachable
}

// Kind classifies an error for castle.
type Kind int

// The kinds of errors.
const (
	Other        Kind = iota
	Refused           // an answer of any other kind, of an API that is there
	Unauthorized      // the token itself is refused
	Forbidden         // the token lacks a privilege
	Missing           // the guest does not exist, at least not on that node
	Taken             // a guest with this id exists already
	Unreachable       // the node does not answer
)

// KindOf returns the kind of an error. Missing and Taken share their status with other answers, so only
// Proxmox's texts tell them apart.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case !errors.As(err, &e):
		return Other
	case e.Code >= 595:
		return Unreachable
	case e.Code == http.StatusUnauthorized:
		return Unauthorized
	case strings.Contains(e.Error(), "already exists"):
		return Taken
	case strings.Contains(e.Text, "does not exist"):
		return Missing
	case e.Code == http.StatusForbidden:
		return Forbidden
	}
	return Refused
}

// Is makes a refused token platform.ErrRefused.
func (e *Error) Is(target error) bool {
	return target == platform.ErrRefused && e.Code == http.StatusUnauthorized
}

// NewError reads the text from wherever this release puts it.
func NewError(response *http.Response, body []byte) *Error {
	_, reason, _ := strings.Cut(response.Status, " ")
	var envelope struct {
		Message string
		Errors  map[string]any
	}
	_ = json.Unmarshal(body, &envelope) // an empty body is usual for 401 and 595
	text := cmp.Or(strings.TrimSpace(envelope.Message), reason)
	if to, err := response.Location(); err == nil {
		text = fmt.Sprintf("%s; it redirects to %s://%s, where castle does not send the token", text,
			to.Scheme, to.Host)
	}
	return &Error{Code: response.StatusCode, Text: text, Params: envelope.Errors}
}

// TaskError is the end of a task that has failed.
type TaskError struct{ UPID, Exit string }

func (e *TaskError) Error() string { return "task " + e.UPID + ": " + e.Exit }

// Ignored reports whether a guest has not followed a request to shut down.
func (e *TaskError) Ignored() bool { return strings.HasPrefix(e.Exit, "VM quit/powerdown failed") }

// ContentOf is the content type that a file's volume id carries.
func ContentOf(volume string) string {
	_, name, _ := strings.Cut(volume, ":")
	content, _, _ := strings.Cut(name, "/")
	return content
}

// guestVolume is the name of a guest's disk: local-lvm:vm-421-disk-0, local:9000/base-9000-disk-0.qcow2.
var guestVolume = regexp.MustCompile(`[:/](?:vm|base)-(\d+)-`)

// OwnerOf is the id of the guest whose disk a volume is; 0 if it is none.
func OwnerOf(volume string) int {
	id := 0
	if found := guestVolume.FindStringSubmatch(volume); found != nil {
		id, _ = strconv.Atoi(found[1]) //nolint:errcheck // digits
	}
	return id
}

// StorageOf is the storage of a volume.
func StorageOf(volume string) string {
	storage, _, _ := strings.Cut(volume, ":")
	return storage
}
