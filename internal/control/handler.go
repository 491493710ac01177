package control

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Guard says who may speak to a Handler. The zero value is for a Unix socket, whose file says who may.
type Guard struct {
	Token string   // that every request has to bear; "": none is asked for
	Hosts []string // names that the server may be addressed by, besides those of this host itself. Nil: by any
}

// guarded reports whether hosts are checked.
func (g Guard) guarded() bool { return g.Token != "" || g.Hosts != nil }

// Handler returns the handler that watches and tunes t, for those whom g lets in.
func Handler(t Target, g Guard) http.Handler {
	return &handler{target: t, guard: g, token: sha256.Sum256([]byte(g.Token))}
}

type handler struct {
	target Target
	guard  Guard
	token  [sha256.Size]byte
}

// endpoint is one thing that can be asked.
type endpoint struct {
	method, path string
	serve        func(h *handler, r *http.Request) (answer any, err error)
}

func endpoints() []endpoint {
	return []endpoint{
		{http.MethodGet, "/status", (*handler).status},
		{http.MethodPost, "/limits", (*handler).limits},
		{http.MethodPost, "/pause", act(Pause)},
		{http.MethodPost, "/resume", act(Resume)},
		{http.MethodPost, "/drain", act(Drain)},
	}
}

const mostBody = 64 << 10

// ServeHTTP answers in JSON.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	answer, err := h.serve(w, r)
	status := http.StatusOK
	if err != nil {
		problem := &Error{Status: http.StatusInternalServerError, Text: err.Error()}
		errors.As(err, &problem)
		status, answer = problem.Status, problem
	}
	b, err := json.Marshal(answer)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(append(b, '\n')) // who is gone needs no answer
}

// serve checks who asks and what, and does it. A panic is an error of the one request.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) (answer any, err error) {
	defer func() {
		if p := recover(); p != nil {
			answer, err = nil, &Error{Status: http.StatusInternalServerError, Text: fmt.Sprintf("internal error: %v", p)}
		}
	}()
	if err := h.admit(r); err != nil {
		if err.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
		}
		return nil, err
	}
	all := endpoints()
	i := slices.IndexFunc(all, func(e endpoint) bool { return e.path == r.URL.Path })
	if i < 0 {
		return nil, noSuchPath(all)
	}
	e := all[i]
	if r.Method != e.method && !(e.method == http.MethodGet && r.Method == http.MethodHead) {
		allow := e.method
		if allow == http.MethodGet {
			allow += ", " + http.MethodHead
		}
		w.Header().Set("Allow", allow)
		return nil, &Error{Status: http.StatusMethodNotAllowed, Text: fmt.Sprintf("%s takes %s", e.path, e.method)}
	}
	return e.serve(h, r)
}

// admit refuses what a browser sends on behalf of some page, and who does not know the token.
func (h *handler) admit(r *http.Request) *Error {
	if len(r.Header.Values("Origin")) > 0 {
		return &Error{Status: http.StatusForbidden, Text: "requests of web pages, which have an Origin, are refused"}
	}
	if h.guard.guarded() && !h.addressed(r.Host) {
		return &Error{Status: http.StatusForbidden, Text: "the Host of the request is not a name of this server",
			Hint: "address it by 127.0.0.1 or localhost, or allow the name by --control-host"}
	}
	if h.guard.Token == "" {
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token))) // of one length, so that comparing takes one time
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(sum[:], h.token[:]) != 1 {
		return &Error{Status: http.StatusUnauthorized, Text: "the token is missing or wrong", Hint: "send Authorization: Bearer TOKEN"}
	}
	return nil
}

// addressed reports whether the server goes by that name. A page may have any other name lead here.
func (h *handler) addressed(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsLoopback() {
		return true
	}
	return host == "localhost" || slices.ContainsFunc(h.guard.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

func (h *handler) status(*http.Request) (any, error) {
	s, err := h.target.Status()
	return s, ready(err)
}

// changes is the answer to POST /limits.
type changes struct {
	Accounts []Change `json:"accounts"`
}

func (h *handler) limits(r *http.Request) (any, error) {
	body, err := io.ReadAll(r.Body)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Text: fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit)}
	}
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Text: "the body could not be read"}
	}
	limits, err := ParseLimits(body)
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Text: err.Error(), Example: json.RawMessage(limitsExample)}
	}
	done, err := h.target.SetLimits(limits)
	if err != nil {
		return nil, ready(err)
	}
	if done == nil {
		done = []Change{}
	}
	return changes{done}, nil
}

// done is the answer to what asks for an action.
type done struct {
	Phase Phase `json:"phase"`
}

// act returns what serves an action: it answers with what the run is about now.
func act(a Action) func(*handler, *http.Request) (any, error) {
	return func(h *handler, _ *http.Request) (any, error) {
		if err := h.target.Act(a); err != nil {
			return nil, ready(err)
		}
		s, err := h.target.Status()
		return done{s.Phase}, ready(err)
	}
}

// ready says in HTTP that the target has not begun.
func ready(err error) error {
	if errors.Is(err, ErrNotReady) {
		return &Error{Status: http.StatusServiceUnavailable, Text: err.Error(), Hint: "it reads its input: ask again"}
	}
	if errors.Is(err, context.Canceled) {
		return &Error{Status: http.StatusServiceUnavailable, Text: "the run has ended"}
	}
	return err
}

// noSuchPath lists those that there are.
func noSuchPath(all []endpoint) *Error {
	e := &Error{Status: http.StatusNotFound, Text: "there is nothing at this path"}
	for _, one := range all {
		e.Endpoints = append(e.Endpoints, one.method+" "+one.path)
	}
	return e
}

// Error is why a request was refused.
type Error struct {
	Status    int             `json:"-"`
	Text      string          `json:"error"`
	Hint      string          `json:"hint,omitempty"`
	Example   json.RawMessage `json:"example,omitempty"`
	Endpoints []string        `json:"endpoints,omitempty"`
}

// Error says why.
func (e *Error) Error() string { return e.Text }
