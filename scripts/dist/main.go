// Command dist makes parts of a release; scripts/release calls it.
//
//	dist pack ARCHIVE DIR TIME    packs the files below DIR, all of that Unix time
//	dist sbom BINARY              prints what is in BINARY, as CycloneDX
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/scripts/internal/dist"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist: error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 4 && args[0] == "pack":
		at, err := strconv.ParseInt(args[3], 10, 64)
		if err != nil {
			return err
		}
		return dist.Pack(args[1], args[2], time.Unix(at, 0))
	case len(args) == 2 && args[0] == "sbom":
		text, err := dist.SBOM(args[1])
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(text)
		return err
	}
	return errors.New("it is dist pack ARCHIVE DIR TIME, or dist sbom BINARY")
}
