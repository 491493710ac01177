package gateway_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/gateway"
)

// A slow reader delays no request, and the log counts the lines that it omits.
func TestASlowReaderOfTheAccessLogDelaysNoRequest(t *testing.T) {
	r, w := io.Pipe()
	log, err := gateway.OpenAccessLog(gateway.AccessLogConfig{
		File: "-", Stdout: w, Redact: strings.ToUpper, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	const requests = 5000
	for range requests {
		log.Ended(&gateway.Record{ID: "a secret"})
	}
	go func() {
		log.Close()
		w.Close()
	}()
	lines, omitted := 0, 0
	for d := json.NewDecoder(r); ; {
		var line struct {
			ID    string `json:"REQUEST_ID"`
			Lines int    `json:"LINES"`
		}
		if err := d.Decode(&line); err == io.EOF {
			break
		} else if err != nil || line.Lines == 0 && line.ID != "A SECRET" {
			t.Fatal(line, err)
		}
		if omitted += line.Lines; line.Lines == 0 {
			lines++
		}
	}
	if lines < 1000 || omitted == 0 || lines+omitted != requests {
		t.Errorf("%d lines and %d omitted lines of %d requests", lines, omitted, requests)
	}
}

// narrow is a file with room for a number of bytes.
type narrow struct {
	*os.File
	room int64
}

func (f *narrow) WriteString(text string) (int, error) {
	at, _ := f.Seek(0, io.SeekEnd)
	if left := f.room - at; int64(len(text)) > left {
		n, _ := f.File.WriteString(text[:left])
		return n, io.ErrShortWrite
	}
	return f.File.WriteString(text)
}

func TestAFullDiskLeavesNoHalfLines(t *testing.T) {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	to := &narrow{f, 20}
	for i, text := range []string{"one line\n", "another line\n", "short\n"} {
		if err := gateway.AppendLine(to, text); (err != nil) != (i == 1) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if text, err := os.ReadFile(f.Name()); err != nil || string(text) != "one line\nshort\n" {
		t.Errorf("%q %v", text, err)
	}
}
