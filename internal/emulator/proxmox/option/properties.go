package option

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox/failure"
)

// PrintSize formats bytes in the largest unit that divides them.
func PrintSize(bytes int64) string {
	units := []string{"", "K", "M", "G", "T"}
	i := 0
	for ; i < len(units)-1 && bytes%1024 == 0 && bytes > 0; i++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}

// ParseSize reads a size such as 40G.
func ParseSize(s string) (int64, bool) {
	unit := int64(1)
	if i := strings.IndexAny(s, "KMGT"); i == len(s)-1 && i > 0 {
		unit <<= 10 * (1 + strings.IndexByte("KMGT", s[i]))
		s = s[:i]
	}
	n, err := strconv.ParseFloat(s, 64)
	return int64(n * float64(unit)), err == nil && n >= 0
}

// DriveSize is the size in a drive's options; 0 without one.
func DriveSize(options string) int64 {
	size, _ := ParseSize(Parse(options, "file")["size"])
	return size
}

// Resize rewrites the size option of a drive.
func Resize(value string, size int64) string {
	volume, rest, _ := strings.Cut(value, ",")
	options := Parse(rest, "file")
	options["size"] = PrintSize(size)
	return Print(volume, options)
}

// Properties are the parts of a property string such as "virtio=BC:24:…,bridge=vmbr0".
type Properties map[string]string

// Parse splits a property string; a part without "=" is the value of the default key.
func Parse(s, defaultKey string) Properties {
	all := Properties{}
	for part := range strings.SplitSeq(s, ",") {
		if key, value, ok := strings.Cut(part, "="); ok {
			all[key] = value
		} else if part != "" {
			all[defaultKey] = part
		}
	}
	return all
}

// Take removes a property and returns its value.
func (all Properties) Take(key string) string {
	defer delete(all, key)
	return all[key]
}

// Print writes first, then the others in alphabetical order.
func Print(first string, others Properties) string {
	for _, key := range slices.Sorted(maps.Keys(others)) {
		first += "," + key + "=" + others[key]
	}
	return first
}

// Card returns a network card as it is stored: with its MAC address, that of the card that it replaces, or a
// new one.
func Card(key, value, replaced string) (string, error) {
	options := Parse(value, "model")
	model, mac := options.Take("model"), options.Take("macaddr")
	for _, known := range []string{"virtio", "e1000", "e1000e", "rtl8139", "vmxnet3"} {
		if options[known] != "" {
			model, mac = known, options.Take(known)
		}
	}
	if model == "" {
		return "", failure.BadParameter(key,
			"invalid format - format error\nmodel: property is missing and it is not optional\n")
	}
	var b [3]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	mac = cmp.Or(mac, MAC(replaced), fmt.Sprintf("BC:24:11:%02X:%02X:%02X", b[0], b[1], b[2]))
	return Print(model+"="+strings.ToUpper(mac), options), nil
}

// MAC is the MAC address of a network card.
func MAC(card string) string {
	first, _, _ := strings.Cut(card, ",")
	_, mac, _ := strings.Cut(first, "=")
	return mac
}
