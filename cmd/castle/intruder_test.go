package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

// intruder is a foreign VM that appears right before the provider's request to create its own with that id.
type intruder struct {
	vm    emulator.VM
	after int // the id of a VM that must exist first; 0 for none
	once  sync.Once
	as    []string // the VM and its disks as they were then
}

// raced lets the intruder act between castle's last look and the provider's request.
func (d *datacenter) raced(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i := d.intrude.Load(); i != nil && r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/qemu") {
			body, _ := io.ReadAll(r.Body) //nolint:errcheck // then it lacks the id
			r.Body = io.NopCloser(bytes.NewReader(body))
			form, _ := url.ParseQuery(string(body)) //nolint:errcheck // then it lacks the id
			if form.Get("vmid") == strconv.Itoa(i.vm.ID) {
				i.once.Do(func() {
					eventually(time.Minute, 10*time.Millisecond, func() bool {
						return i.after == 0 || len(d.state(i.after)) > 0
					})
					d.proxmox.AddVM(i.vm)
					i.as = d.state(i.vm.ID)
				})
			}
		}
		h.ServeHTTP(w, r)
	})
}

// state describes a VM and its disks to the last byte.
func (d *datacenter) state(id int) (lines []string) {
	for _, vm := range d.proxmox.VMs() {
		if vm.ID == id {
			lines = append(lines, fmt.Sprintf("%+v", vm))
		}
	}
	for _, disk := range d.proxmox.Disks() {
		if disk.Owner == id {
			lines = append(lines, fmt.Sprintf("%+v", disk))
		}
	}
	return lines
}

// limit runs the commands of docs/proxmox.md for a cluster, and returns the token that they make.
func (d *datacenter) limit(cluster string) (token string, err error) {
	text, err := os.ReadFile("../../docs/proxmox.md")
	if err != nil {
		return "", err
	}
	page, _, _ := strings.Cut(string(text), "## The reason")
	for line := range strings.Lines(strings.ReplaceAll(page, "green", cluster)) {
		command, ok := strings.CutPrefix(line, "    pveum ")
		if !ok {
			continue
		}
		secret, err := d.proxmox.Pveum("pveum " + command)
		if err != nil {
			return "", err
		}
		if secret != "" {
			token = "castle@pve!" + cluster + "=" + secret
		}
	}
	return token, nil
}
