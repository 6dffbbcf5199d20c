package proxmox

import (
	"cmp"
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
	unknown  kind = iota
	argument      // of the call: no option
	text
	integer
	boolean
	drive
	nic
	tagList
	hostname
)

// kinds are the parameters that castle's stages and the provider may send; # is a number.
var kinds = map[kind]string{
	argument: "vmid node pool start digest delete background_delay force unique archive storage",
	hostname: "name",
	tagList:  "tags",
	integer:  "cores sockets vcpus cpuunits balloon shares migrate_speed",
	boolean: `acpi kvm tdf localtime freeze onboot autostart tablet protection template numa keephugepages
		ciupgrade reboot`,
	text: `description memory cpu cpulimit bios boot bootdisk agent ostype keyboard scsihw cicustom ciuser
		cipassword sshkeys nameserver searchdomain citype vga smbios# vmgenid machine args hookscript hotplug
		startup startdate watchdog arch affinity rng# audio# hugepages ivshmem vmstatestorage ipconfig#
		serial# usb# hostpci# numa# parallel# virtiofs#`,
	drive: "efidisk# tpmstate# scsi# virtio# sata# ide#",
	nic:   "net#",
}

var digits = regexp.MustCompile(`\d+$`)

func kindOf(key string) kind {
	key = digits.ReplaceAllString(key, "#")
	for kind, names := range kinds {
		if slices.Contains(strings.Fields(names), key) {
			return kind
		}
	}
	return unknown
}

// isUnused reports whether an option is a disk that was detached.
func isUnused(key string) bool { return strings.HasPrefix(key, "unused") }

const dnsLabel = `[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?`

var dnsName = regexp.MustCompile(`^` + dnsLabel + `(\.` + dnsLabel + `)*$`)

// plain validates an option that is neither drive nor network card and returns the value to store.
func plain(key, value string) (string, error) {
	switch kindOf(key) {
	case hostname:
		if !dnsName.MatchString(value) {
			return "", badParameter(key, "invalid format - value does not look like a valid DNS name\n")
		}
	case integer:
		if _, err := strconv.Atoi(value); err != nil {
			return "", badParameter(key, "type check ('integer') failed - got '%s'\n", value)
		}
	case boolean:
		on, ok := parseBool(value)
		if !ok {
			return "", badParameter(key, "type check ('boolean') failed - got '%s'\n", value)
		}
		return strconv.Itoa(number(on)), nil
	case tagList: // as a datacenter does by default: in lower case and sorted
		tags := splitList(strings.ToLower(value))
		slices.Sort(tags)
		return strings.Join(slices.Compact(tags), ";"), nil
	case text:
		return strings.TrimRight(value, " \t\r\n"), nil
	case unknown:
		return "", badParameter(key,
			"property is not defined in schema and the schema does not allow additional properties\n")
	}
	return value, nil
}

func parseBool(value string) (on, ok bool) {
	switch strings.ToLower(value) {
	case "1", "on", "yes", "true":
		return true, true
	case "0", "off", "no", "false":
		return false, true
	}
	return false, false
}

func splitList(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(";, \t", r) })
}

// show is the configuration in JSON: integers and booleans are numbers, everything else is a string.
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
	for _, key := range sortedKeys(g.Pending) {
		fmt.Fprintf(sum, "[PENDING] %s: %s\n", key, g.Pending[key])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// properties are the parts of a property string such as "virtio=BC:24:…,bridge=vmbr0".
type properties map[string]string

// parseProperties splits a property string; a part without "=" is the value of the default key.
func parseProperties(s, defaultKey string) properties {
	all := properties{}
	for part := range strings.SplitSeq(s, ",") {
		if key, value, ok := strings.Cut(part, "="); ok {
			all[key] = value
		} else if part != "" {
			all[defaultKey] = part
		}
	}
	return all
}

// take removes a property and returns its value.
func (all properties) take(key string) string {
	defer delete(all, key)
	return all[key]
}

// printProperties writes first, then the others in alphabetical order.
func printProperties(first string, others properties) string {
	for _, key := range sortedKeys(others) {
		first += "," + key + "=" + others[key]
	}
	return first
}

// card returns a network card as it is stored: with a MAC address, which is generated if none is given.
func (g *guest) card(key, value string) (string, error) {
	options := parseProperties(value, "model")
	model, mac := options.take("model"), options.take("macaddr")
	for _, known := range []string{"virtio", "e1000", "e1000e", "rtl8139", "vmxnet3"} {
		if options[known] != "" {
			model, mac = known, options.take(known)
		}
	}
	if model == "" {
		return "", badParameter(key,
			"invalid format - format error\nmodel: property is missing and it is not optional\n")
	}
	var b [3]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	mac = cmp.Or(mac, g.mac(key), fmt.Sprintf("BC:24:11:%02X:%02X:%02X", b[0], b[1], b[2]))
	return printProperties(model+"="+strings.ToUpper(mac), options), nil
}

func (g *guest) mac(key string) string {
	first, _, _ := strings.Cut(g.Config[key], ",")
	_, mac, _ := strings.Cut(first, "=")
	return mac
}
