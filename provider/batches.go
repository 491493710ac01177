package provider

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// BatchAPI describes a provider's Batch API, which processes many requests at a lower price, usually within a day. The zero value describes
// a provider without a Batch API. A number of 0 means unknown.
type BatchAPI struct {
	API      string        // API format: openai, anthropic or gemini; "" if the provider has no Batch API
	Requests int           // maximum number of requests in a batch
	Bytes    int64         // maximum size of a batch file in bytes
	PerHour  int           // maximum number of new batches per hour
	Pending  int           // maximum number of requests in all unfinished batches together
	Window   time.Duration // time after which the provider stops an unfinished batch
	Price    float64       // price of a batch request as a fraction of the normal price, such as 0.5
	Source   string        // URL of the documentation
}

// BatchesRow is the YAML form of a [BatchAPI]. A missing field keeps the provider's value unchanged.
type BatchesRow struct {
	API      *string  `yaml:"api"`
	Requests *Count   `yaml:"requests"`
	Bytes    *Count   `yaml:"bytes"`
	PerHour  *Count   `yaml:"per_hour"`
	Pending  *Count   `yaml:"pending"`
	Window   string   `yaml:"window"`
	Price    *float64 `yaml:"price"`
	Source   string   `yaml:"source"`
}

// batchAPIs are the forms that there are.
var batchAPIs = [...]string{"openai", "anthropic", "gemini"}

// change changes what the row says of a Batch API. An api of "" says that there is none. The error is about the returned
// field.
func (b *BatchAPI) change(row *BatchesRow) (field string, err error) {
	if row == nil {
		return "", nil
	}
	if row.API != nil && *row.API == "" {
		*b = BatchAPI{}
		if *row != (BatchesRow{API: row.API}) {
			return ".api", errors.New("an empty api disables the Batch API: remove the other fields of batches")
		}
		return "", nil
	}
	set(&b.API, row.API)
	if !slices.Contains(batchAPIs[:], b.API) {
		return ".api", fmt.Errorf("unknown Batch API %q: use one of %s", b.API, strings.Join(batchAPIs[:], ", "))
	}
	bytes := Count(b.Bytes)
	for _, f := range []struct {
		name string
		to   *int
		from *Count
	}{
		{".requests", &b.Requests, row.Requests}, {".bytes", (*int)(&bytes), row.Bytes},
		{".per_hour", &b.PerHour, row.PerHour}, {".pending", &b.Pending, row.Pending},
	} {
		if f.from != nil && *f.from <= 0 {
			return f.name, fmt.Errorf("%d is not above zero: omit the field if the number is unknown", *f.from)
		}
		set(f.to, (*int)(f.from))
	}
	b.Bytes = int64(bytes)
	if row.Window != "" {
		if b.Window, err = duration(row.Window); err != nil {
			return ".window", err
		}
	}
	if row.Price != nil && !(*row.Price > 0 && *row.Price <= 1) {
		return ".price", fmt.Errorf("%v is not a fraction of the normal price, such as 0.5", *row.Price)
	}
	set(&b.Price, row.Price)
	said(&b.Source, row.Source)
	return "", nil
}
