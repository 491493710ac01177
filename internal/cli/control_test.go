package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// control FILE ADDR METHOD PATH [BODY [HEADER...]] asks a run's control and writes status, headers and body to FILE. ADDR is a
// socket, or host:port. With "wait" before FILE it asks until the answer is no refusal to connect and no 503.
func cmdControl(ts *testscript.TestScript, neg bool, args []string) {
	wait := len(args) > 0 && args[0] == "wait"
	if wait {
		args = args[1:]
	}
	usage(ts, neg, len(args) >= 4, "control [wait] FILE ADDR METHOD PATH [BODY [HEADER...]]")
	var said string
	ask := func() bool {
		var status int
		var err error
		status, said, err = askControl(ts.MkAbs(args[1]), args[1], args[2:])
		if err != nil {
			said = fmt.Sprintf("no answer: %v\n", err)
		}
		return err == nil && status != http.StatusServiceUnavailable
	}
	if wait {
		await(ts, "the control to answer", ask)
	} else {
		ask()
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(said), 0o644))
}

// askControl sends one request.
func askControl(path, address string, args []string) (status int, said string, err error) {
	network, name, url := "unix", path, "http://localhost"
	if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
		network, name, url = "tcp", address, "http://"+address
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, name)
		},
	}}
	body := ""
	if len(args) > 2 {
		body = args[2]
	}
	req, err := http.NewRequest(args[0], url+args[1], strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for _, header := range args[min(3, len(args)):] {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "status %d\n", resp.StatusCode)
	resp.Header.Write(&text)
	text.Write(answer)
	return resp.StatusCode, strings.ReplaceAll(text.String(), "\r", ""), nil
}

// hammer ADDR N sends N of each request that tunes a run, from several sides at once; each must be answered well.
func cmdHammer(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "hammer ADDR N")
	asks := [][]string{
		{"POST", "/pause"}, {"POST", "/resume"}, {"GET", "/status"},
		{"POST", "/limits", `{"rpm":600000}`}, {"POST", "/limits", `{"limits":{"concurrent":5,"rpm":null}}`},
	}
	var wg sync.WaitGroup
	wrong := make(chan string, len(asks)*number(ts, args[1]))
	for _, ask := range asks {
		wg.Go(func() {
			for range cap(wrong) / len(asks) {
				if status, said, err := askControl(ts.MkAbs(args[0]), args[0], ask); err != nil || status != http.StatusOK {
					wrong <- fmt.Sprintf("%v: %v %s", ask, err, said)
				}
			}
		})
	}
	wg.Wait()
	close(wrong)
	for text := range wrong {
		ts.Fatalf("%s", text)
	}
}
