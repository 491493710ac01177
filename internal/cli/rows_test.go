package cli_test

import (
	"bytes"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/testscript"
)

// compress FROM TO gzip|zstd writes a file compressed.
func cmdCompress(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "compress FROM TO gzip|zstd")
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if args[2] == "zstd" {
		var err error
		w, err = zstd.NewWriter(&b)
		ts.Check(err)
	}
	_, err := io.WriteString(w, ts.ReadFile(args[0]))
	ts.Check(err)
	ts.Check(w.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o644))
}

// cut FROM TO N writes the first bytes of a file.
func cmdCut(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "cut FROM TO N")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(ts.ReadFile(args[0])[:number(ts, args[2])]), 0o644))
}
