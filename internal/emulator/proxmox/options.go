package proxmox

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// kind decides how an option's value is validated and shown.
type kind int

const (
	unknown kind = iota
	text
	integer
	boolean
	drive
	nic
	tagList
	hostname
)

var numbered = regexp.MustCompile(`^([a-z-]+?)(\d+)$`)

// kindOf knows the VM options that castle's stages and the provider may send.
func kindOf(key string) kind {
	switch key {
	case "name":
		return hostname
	case "tags":
		return tagList
	case "cores", "sockets", "vcpus", "cpuunits", "balloon", "shares", "migrate_speed":
		return integer
	case "acpi", "kvm", "tdf", "localtime", "freeze", "onboot", "autostart", "tablet", "protection",
		"template",
		"numa", "keephugepages", "ciupgrade", "reboot":
		return boolean
	case "description", "memory", "cpu", "cpulimit", "bios", "boot", "bootdisk", "agent", "ostype",
		"keyboard",
		"scsihw", "cicustom", "ciuser", "cipassword", "sshkeys", "nameserver", "searchdomain", "citype",
		"vga",
		"smbios1", "vmgenid", "machine", "args", "hookscript", "hotplug", "startup", "startdate", "watchdog",
		"arch", "affinity", "rng0", "audio0", "hugepages", "ivshmem", "vmstatestorage":
		return text
	case "efidisk0", "tpmstate0":
		return drive
	}
	found := numbered.FindStringSubmatch(key)
	if found == nil {
		return unknown
	}
	switch found[1] {
	case "scsi", "virtio", "sata", "ide":
		return drive
	case "net":
		return nic
	case "ipconfig", "serial", "usb", "hostpci", "numa", "parallel", "virtiofs":
		return text
	}
	return unknown
}

const dnsLabel = `[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?`

var dnsName = regexp.MustCompile(`^` + dnsLabel + `(\.` + dnsLabel + `)*$`)

// plain validates an option that is neither drive nor network card and returns
// the value to store.
func plain(key, value string) (string, error) {
	switch kindOf(key) {
	case hostname:
		if !dnsName.MatchString(value) {
			return "", badParameter(key, "invalid format - value does not look like a valid DNS name\n")
		}
	case integer:
		if _, err := strconv.Atoi(value); err != nil {
			return "", badParameter(key, fmt.Sprintf("type check ('integer') failed - got '%s'\n", value))
		}
	case boolean:
		on, err := parseBool(value)
		if err != nil {
			return "", badParameter(key, fmt.Sprintf("type check ('boolean') failed - got '%s'\n", value))
		}
		if !on {
			return "0", nil
		}
		return "1", nil
	case tagList:
		return uniqueTags(value), nil
	case text:
		return strings.TrimRight(value, " \t\r\n"), nil
	case unknown:
		return "", badParameter(key,
			"property is not defined in schema and the schema does not allow additional properties\n")
	}
	return value, nil
}

func parseBool(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "1", "on", "yes", "true":
		return true, nil
	case "0", "off", "no", "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is no boolean", value)
}

// uniqueTags lower-cases, sorts and joins tags, as a datacenter does by default.
func uniqueTags(value string) string {
	tags := splitList(strings.ToLower(value))
	slices.Sort(tags)
	return strings.Join(slices.Compact(tags), ";")
}

func splitList(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(";, \t", r) })
}

// show is the configuration in JSON: integers and booleans are numbers, everything
// else is a string.
func (g *guest) show() map[string]any {
	out := map[string]any{"digest": g.digest()}
	for key, value := range g.Config {
		out[key] = value
		if kind := kindOf(key); kind == integer || kind == boolean {
			if n, err := strconv.Atoi(value); err == nil {
				out[key] = n
			}
		}
	}
	if _, ok := out["cipassword"]; ok {
		out["cipassword"] = "**********"
	}
	return out
}

func (g *guest) digest() string {
	sum := sha1.New()
	for _, key := range sortedKeys(g.Config) {
		fmt.Fprintf(sum, "%s: %s\n", key, g.Config[key])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// property is one part of a property string such as "virtio=BC:24:…,bridge=vmbr0".
type property struct{ key, value string }

type properties []property

// get returns the first value of a key; "" without one.
func (all properties) get(key string) string {
	for _, p := range all {
		if p.key == key {
			return p.value
		}
	}
	return ""
}

// parseProperties splits a property string; a part without "=" is the value of
// the default key.
func parseProperties(s, defaultKey string) properties {
	var all properties
	for part := range strings.SplitSeq(s, ",") {
		if part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			key, value = defaultKey, part
		}
		all = append(all, property{key, value})
	}
	return all
}

// printProperties writes first, then the others in alphabetical order.
func printProperties(first string, others []property) string {
	slices.SortFunc(others, func(a, b property) int { return strings.Compare(a.key, b.key) })
	out := []string{first}
	for _, p := range others {
		out = append(out, p.key+"="+p.value)
	}
	return strings.Join(out, ",")
}

// card returns a network card as it is stored: with a MAC address, which is
// generated if none is given.
func (g *guest) card(key, value string) (string, error) {
	var model, mac string
	var others []property
	for _, p := range parseProperties(value, "model") {
		switch p.key {
		case "model":
			model = p.value
		case "macaddr":
			mac = p.value
		case "virtio", "e1000", "e1000e", "rtl8139", "vmxnet3":
			model, mac = p.key, p.value
		default:
			others = append(others, p)
		}
	}
	if model == "" {
		return "", badParameter(key,
			"invalid format - format error\nmodel: property is missing and it is not optional\n")
	}
	if mac == "" {
		if mac = g.mac(key); mac == "" {
			var b [3]byte
			rand.Read(b[:]) //nolint:errcheck // never fails
			mac = fmt.Sprintf("BC:24:11:%02X:%02X:%02X", b[0], b[1], b[2])
		}
	}
	return printProperties(model+"="+strings.ToUpper(mac), others), nil
}

func (g *guest) mac(key string) string {
	first, _, _ := strings.Cut(g.Config[key], ",")
	_, mac, _ := strings.Cut(first, "=")
	return mac
}
