package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// request FILE ADDR METHOD PATH [BODY [HEADER...]] makes a request and writes status, headers and body of its response to FILE.
func cmdRequest(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 4, "request FILE ADDR METHOD PATH [BODY [HEADER...]]")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(responseTo(args[1], args[2:])), 0o644))
}

func responseTo(address string, args []string) string {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	body := ""
	if len(args) > 2 {
		body = args[2]
	}
	req, err := http.NewRequest(args[0], "http://"+address+args[1], strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	for _, header := range args[min(3, len(args)):] {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "status %d\n", resp.StatusCode)
	resp.Header.Write(&text)
	text.Write(content)
	return strings.ReplaceAll(text.String(), "\r", "")
}
