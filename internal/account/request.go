package account

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// checkBaseURL refuses secrets in an address, because it is printed and recorded.
func checkBaseURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return fault.New(fault.Value, errors.New("--base-url is not a valid URL"), "give a URL such as http://127.0.0.1:8000/v1")
	case address != "" && (u.Scheme != "http" && u.Scheme != "https" || u.Host == ""):
		return fault.New(fault.Value, errors.New("--base-url is not an http or https URL"), "give a URL such as http://127.0.0.1:8000/v1")
	case u.User != nil:
		return fault.New(fault.Value, errors.New("--base-url contains a user or password"),
			"send the user and password with --header 'Authorization: Basic ...'")
	case u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(address, "#"):
		return fault.New(fault.Value, errors.New("--base-url has a query or a fragment"), "remove the part that starts with ? or #")
	}
	return nil
}

// ParseHeader parses headers of the form "Name: value".
func ParseHeader(texts []string) (http.Header, error) {
	h := make(http.Header)
	for _, text := range texts {
		name, value, ok := strings.Cut(text, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		badName := name == "" || strings.ContainsAny(name, `"(),/:;<=>?@[\]{}`) || strings.ContainsFunc(name, notPrintable)
		badValue := strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
		if !ok || badName || badValue { // the text may contain a secret: it is not quoted
			return nil, fault.New(fault.Value, errors.New("a --header is not of the form 'Name: value'"), "write --header 'X-Project: blue'")
		}
		h.Add(name, value)
	}
	return h, nil
}

// checkHeader refuses headers that belong to the connection: they would have no effect, or make responses unreadable. It hides
// the values of headers with keys.
func checkHeader(h http.Header, hide func(secret string)) error {
	for _, name := range [...]string{"Accept-Encoding", "Connection", "Content-Length", "Host", "Trailer", "Transfer-Encoding", "Upgrade"} {
		if h.Get(name) != "" && !(name == "Accept-Encoding" && h.Get(name) == "identity") {
			return fault.New(fault.Value, fmt.Errorf("--header %s: Sluice sets this header for each connection", name),
				"omit it, and set the address with --base-url")
		}
	}
	for name, values := range h {
		if !provider.IsSecretHeader(name) {
			continue
		}
		for _, value := range values {
			for _, word := range strings.Fields(value) { // "Bearer" and the key after it
				hide(word)
			}
		}
	}
	return nil
}

// connections is how many idle connections are kept: as many as a run can have requests in flight.
const connections = work.UsualWorkers

// simulator returns a simulator in this process, with the limits of a new account. Only the headers of its responses state them.
func simulator() (http.RoundTripper, error) {
	server, err := sim.New(sim.Config{
		Seed: 1, RPM: 900, Burst: 3 * time.Second, Concurrency: 30,
		Latency: 200 * time.Millisecond, Jitter: 0.2, OutputTokens: 80, OutputSigma: 0.4,
	})
	if err != nil {
		return nil, err
	}
	return server.Transport(), nil
}

// ownFiles is how many files the run itself may need: its input, output, state and log, and the lookup of names.
const ownFiles = 64

// room returns how many requests can be in flight at once, because each is an open file; 0 means unlimited.
func room() int {
	files := openFiles()
	if files == 0 || files >= work.UsualWorkers+ownFiles {
		return 0
	}
	return max(1, int(files-min(ownFiles, files/2)))
}

// bound limits the concurrency of each of several accounts to its part of Room. A concurrency that will be learned stays unlimited here:
// the number of workers limits it. With shared limits, the room of this host would limit others.
func (a *Accounts) bound(c *sluice.Config) {
	if a.Room == 0 || a.pool.shared != nil {
		return
	}
	labels := make(map[string]bool)
	for _, up := range a.Settings.Upstreams {
		labels[label(up)] = true
	}
	for _, l := range []*sluice.Limits{&c.Limits, &c.Account, &c.Start} {
		l.Concurrency = min(l.Concurrency, max(1, a.Room/max(1, len(labels))))
	}
}

// RoomNote says that fewer requests can be in flight than wanted. "" means that the room suffices.
func (a *Accounts) RoomNote(wanted int) string {
	if a.Room == 0 || wanted <= a.Room {
		return ""
	}
	return fmt.Sprintf("at most %s requests are in flight, because this process may open only %s files (ulimit -n)",
		prose.Group(a.Room), prose.Group(int64(openFiles())))
}
