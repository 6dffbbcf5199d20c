package installer

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Transcript is what an installer prints before and after it works. It arrives in parts that are no lines.
func Transcript(host, image System, refused error) (before, after string, code int32) {
	log := func(lines ...string) (text string) {
		for _, line := range lines {
			text += time.Now().Format("2006/01/02 15:04:05 ") + line + "\n"
		}
		return text
	}
	text := log("running Talos installer "+image.Release, "running pre-flight checks",
		"host Talos version: "+cmp.Or(host.Release, ISO))
	if refused != nil {
		text += "Error: pre-flight checks failed: " + refused.Error() + "\n"
		code = 1
	} else {
		text += log("all pre-flight checks successful",
			"copying /usr/install/amd64/vmlinuz to /boot/B/vmlinuz",
			"copying /usr/install/amd64/initramfs.xz to /boot/B/initramfs.xz",
			"writing /boot/grub/grub.cfg to disk", "installation of "+image.Release+" complete")
	}
	half := len(text) / 2
	return text[:half], text[half:], code
}

// Preflight is the check of an installer before it installs (cmd/installer/pkg/install/preflight.go). Each
// minor release accepts the two before it, and the one after it to go back.
func Preflight(host, image System) error {
	was, is := strings.TrimPrefix(host.Release, "v"), strings.TrimPrefix(image.Release, "v")
	switch {
	case host.Minor() < image.Minor()-2:
		return fmt.Errorf("host version %s is too old to upgrade to Talos %s", was, is)
	case host.Minor() > image.Minor()+1:
		return fmt.Errorf("host version %s is too new to downgrade to Talos %s", was, is)
	}
	return nil
}
