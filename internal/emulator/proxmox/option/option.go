// Package option knows the options in a guest's configuration file (qemu-server's schema): their kinds, the
// form of their values, and which of them a running guest follows.
package option

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
)

// Kind decides how an option's value is validated and shown.
type Kind int

const (
	Unknown  Kind = iota
	Argument      // of the call: no option
	Text
	Integer
	Boolean
	Drive
	NIC
	TagList
	Hostname
)

// kinds are the parameters that castle's stages and the provider may send; # is a number.
var kinds = map[Kind]string{
	Argument: "vmid node pool start digest delete background_delay force unique archive storage",
	Hostname: "name",
	TagList:  "tags",
	Integer:  "cores sockets vcpus cpuunits balloon shares migrate_speed",
	Boolean: `acpi kvm tdf localtime freeze onboot autostart tablet protection template numa keephugepages
		ciupgrade reboot`,
	Text: `description memory cpu cpulimit bios boot bootdisk agent ostype keyboard scsihw cicustom ciuser
		cipassword sshkeys nameserver searchdomain citype vga smbios# vmgenid machine args hookscript hotplug
		startup startdate watchdog arch affinity rng# audio# hugepages ivshmem vmstatestorage ipconfig#
		serial# usb# hostpci# numa# parallel# virtiofs#`,
	Drive: "efidisk# tpmstate# scsi# virtio# sata# ide#",
	NIC:   "net#",
}

var digits = regexp.MustCompile(`\d+$`)

// Name is an option without its number: net# of net0.
func Name(key string) string { return digits.ReplaceAllString(key, "#") }

// KindOf is the kind of an option's value.
func KindOf(key string) Kind {
	key = Name(key)
	for kind, names := range kinds {
		if slices.Contains(strings.Fields(names), key) {
			return kind
		}
	}
	return Unknown
}

// IsDrive reports whether an option is a disk or a CD drive.
func IsDrive(key string) bool { return KindOf(key) == Drive }

// IsUnused reports whether an option is a disk that was detached.
func IsUnused(key string) bool { return strings.HasPrefix(key, "unused") }

const dnsLabel = `[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?`

var dnsName = regexp.MustCompile(`^` + dnsLabel + `(\.` + dnsLabel + `)*$`)

// Plain validates an option that is neither drive nor network card and returns the value to store.
func Plain(key, value string) (string, error) {
	switch KindOf(key) {
	case Hostname:
		if !dnsName.MatchString(value) {
			return "", failure.BadParameter(key,
				"invalid format - value does not look like a valid DNS name\n")
		}
	case Integer:
		if _, err := strconv.Atoi(value); err != nil {
			return "", failure.BadParameter(key, "type check ('integer') failed - got '%s'\n", value)
		}
	case Boolean:
		on, ok := ParseBool(value)
		if !ok {
			return "", failure.BadParameter(key, "type check ('boolean') failed - got '%s'\n", value)
		}
		return strconv.Itoa(Number(on)), nil
	case TagList: // as a datacenter does by default: in lower case and sorted
		tags := SplitList(strings.ToLower(value))
		slices.Sort(tags)
		return strings.Join(slices.Compact(tags), ";"), nil
	case Text:
		return strings.TrimRight(value, " \t\r\n"), nil
	case Unknown:
		return "", failure.BadParameter(key,
			"property is not defined in schema and the schema does not allow additional properties\n")
	}
	return value, nil
}

// ParseBool reads a boolean as lenient as the schema of Proxmox does.
func ParseBool(value string) (on, ok bool) {
	switch strings.ToLower(value) {
	case "1", "on", "yes", "true":
		return true, true
	case "0", "off", "no", "false":
		return false, true
	}
	return false, false
}

// SplitList splits a list of words.
func SplitList(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(";, \t", r) })
}

// Number is a boolean as the API returns it.
func Number(on bool) int {
	if on {
		return 1
	}
	return 0
}
