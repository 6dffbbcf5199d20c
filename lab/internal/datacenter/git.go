package datacenter

import (
	"fmt"
	"net/http"
	"strings"
)

// git answers the first request of every Git client, the list of branches, for any repository.
// There are no commits behind them; Flux' stand-in fetches nothing. A request without a token gets
// no list.
func git(branches []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, token, _ := r.BasicAuth(); token == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="Git"`)
			http.Error(w, "the lab's repository is private", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		fmt.Fprint(w, packet("# service=git-upload-pack\n")+"0000")
		capabilities := "\x00agent=castle-lab"
		for _, branch := range branches {
			fmt.Fprint(w, packet(strings.Repeat("c", 40)+" refs/heads/"+branch+capabilities+"\n"))
			capabilities = ""
		}
		fmt.Fprint(w, "0000")
	})
}

// packet is a line of the protocol: its length in front, in hexadecimal digits.
func packet(line string) string { return fmt.Sprintf("%04x%s", len(line)+4, line) }
