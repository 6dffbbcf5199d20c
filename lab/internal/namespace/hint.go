package namespace

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// hint names the setting that the machine's administrator must change; nil if none is known.
func hint(err error) error {
	if os.Geteuid() == 0 && !errors.Is(err, syscall.EPERM) {
		return nil
	}
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EACCES) &&
		!errors.Is(err, syscall.EINVAL) {
		return nil
	}
	for _, s := range []struct{ path, closed, open string }{
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "0"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "1"},
		{"/proc/sys/user/max_user_namespaces", "0", "1000"},
	} {
		value, err := os.ReadFile(s.path)
		if err == nil && strings.TrimSpace(string(value)) == s.closed {
			name := strings.ReplaceAll(strings.TrimPrefix(s.path, "/proc/sys/"), "/", ".")
			return fmt.Errorf("castle: hint: the lab needs its own namespaces. Run it as root, or "+
				"allow them: sysctl -w %s=%s", name, s.open)
		}
	}
	return errors.New("castle: hint: the lab needs its own network, mount and process namespaces. " +
		"Run it as root, or in a container with CAP_SYS_ADMIN and an unmasked /proc")
}
