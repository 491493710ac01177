package rows

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// maxDecimalDigits bounds the scale of a decimal, which a damaged file may have as it likes.
const maxDecimalDigits = 1000

// parquetLeafOf returns the name of a leaf's type and how its values are written, or nil if JSON has no exact form of them. A logical type
// counts only with a physical type that the format allows for it. text says that the values are texts.
func parquetLeafOf(e *format.SchemaElement) (typ string, write parquetAppend, text bool) {
	physical := e.Type.V
	logical := e.LogicalType.Value
	if logical == nil {
		var known bool
		if logical, known = parquetLogical(e); !known {
			return convertedName(e), nil, false
		}
	}
	if logical == nil {
		return physicalName(e), plainValue(physical), physical == format.ByteArray
	}
	int32s, int64s, bytes := physical == format.Int32, physical == format.Int64, physical == format.ByteArray
	switch t := logical.(type) {
	case *format.StringType, *format.EnumType, *format.JsonType:
		if bytes {
			write, text = appendText, true
		}
	case *format.IntType:
		switch {
		case int32s && t.BitWidth <= 32 && !t.IsSigned:
			write = func(b []byte, v parquet.Value) ([]byte, string) {
				return strconv.AppendUint(b, uint64(v.Uint32()), 10), ""
			}
		case int64s && t.BitWidth == 64 && !t.IsSigned:
			write = func(b []byte, v parquet.Value) ([]byte, string) { return strconv.AppendUint(b, v.Uint64(), 10), "" }
		case int32s && t.BitWidth <= 32, int64s && t.BitWidth == 64:
			write = plainValue(physical)
		}
	case *format.DecimalType:
		if t.Scale >= 0 && t.Scale <= maxDecimalDigits && (int32s || int64s || bytes || physical == format.FixedLenByteArray) {
			write = decimalValue(int(t.Scale))
		}
	case *format.DateType:
		if int32s {
			write = appendDate
		}
	case *format.TimeType:
		if unit := t.Unit.Value; unit != nil && (int32s && unit.Duration() == time.Millisecond || int64s && unit.Duration() < time.Millisecond) {
			write = timeValue(unit.Duration())
		}
	case *format.TimestampType:
		if unit := t.Unit.Value; unit != nil && int64s {
			write = timestampValue(unit.Duration(), t.IsAdjustedToUTC)
		}
	case *format.UUIDType:
		if physical == format.FixedLenByteArray && e.TypeLength.V == 16 {
			write = appendUUID
		}
	case *format.NullType:
		write = func(b []byte, _ parquet.Value) ([]byte, string) { return append(b, "null"...), "" }
	}
	return logical.String(), write, text
}

// parquetLogical returns the logical type of an old annotation; nil is none. It does not know every annotation.
func parquetLogical(e *format.SchemaElement) (logical format.LogicalTypeValue, known bool) {
	integer := func(bits int8, signed bool) (format.LogicalTypeValue, bool) {
		return &format.IntType{BitWidth: bits, IsSigned: signed}, true
	}
	switch parquetConverted(e) {
	case -1:
		return nil, true
	case deprecated.UTF8:
		return new(format.StringType), true
	case deprecated.Enum:
		return new(format.EnumType), true
	case deprecated.Json:
		return new(format.JsonType), true
	case deprecated.Decimal:
		return &format.DecimalType{Scale: e.Scale.V, Precision: e.Precision.V}, true
	case deprecated.Date:
		return new(format.DateType), true
	case deprecated.TimeMillis:
		return &format.TimeType{IsAdjustedToUTC: true, Unit: parquet.Millisecond.TimeUnit()}, true
	case deprecated.TimeMicros:
		return &format.TimeType{IsAdjustedToUTC: true, Unit: parquet.Microsecond.TimeUnit()}, true
	case deprecated.TimestampMillis:
		return &format.TimestampType{IsAdjustedToUTC: true, Unit: parquet.Millisecond.TimeUnit()}, true
	case deprecated.TimestampMicros:
		return &format.TimestampType{IsAdjustedToUTC: true, Unit: parquet.Microsecond.TimeUnit()}, true
	case deprecated.Uint8:
		return integer(8, false)
	case deprecated.Uint16:
		return integer(16, false)
	case deprecated.Uint32:
		return integer(32, false)
	case deprecated.Uint64:
		return integer(64, false)
	case deprecated.Int8:
		return integer(8, true)
	case deprecated.Int16:
		return integer(16, true)
	case deprecated.Int32:
		return integer(32, true)
	case deprecated.Int64:
		return integer(64, true)
	}
	return nil, false
}

// convertedName names an old annotation that has no logical type.
func convertedName(e *format.SchemaElement) string {
	switch e.ConvertedType.V {
	case deprecated.Interval:
		return "INTERVAL"
	case deprecated.Bson:
		return "BSON"
	}
	return fmt.Sprintf("%s with the annotation %d", physicalName(e), e.ConvertedType.V)
}

func physicalName(e *format.SchemaElement) string {
	if e.Type.V == format.FixedLenByteArray {
		return fmt.Sprintf("%s(%d)", e.Type.V, e.TypeLength.V)
	}
	return e.Type.V.String()
}

// plainValue writes values of a physical type without annotation.
func plainValue(physical format.Type) parquetAppend {
	switch physical {
	case format.Boolean:
		return func(b []byte, v parquet.Value) ([]byte, string) { return strconv.AppendBool(b, v.Boolean()), "" }
	case format.Int32:
		return func(b []byte, v parquet.Value) ([]byte, string) {
			return strconv.AppendInt(b, int64(v.Int32()), 10), ""
		}
	case format.Int64:
		return func(b []byte, v parquet.Value) ([]byte, string) { return strconv.AppendInt(b, v.Int64(), 10), "" }
	case format.Int96:
		return appendInt96
	case format.Float:
		return func(b []byte, v parquet.Value) ([]byte, string) { return appendFloat(b, v.Float(), float64(v.Float())) }
	case format.Double:
		return func(b []byte, v parquet.Value) ([]byte, string) { return appendFloat(b, v.Double(), v.Double()) }
	case format.ByteArray, format.FixedLenByteArray:
		return appendText
	}
	return nil
}

func appendText(b []byte, v parquet.Value) ([]byte, string) {
	text := v.ByteArray()
	if !utf8.Valid(text) {
		return b, "a value is not valid UTF-8"
	}
	return jsonscan.AppendString(b, text), ""
}

// appendFloat appends the shortest number that reads as value in its own width, or the name of one that JSON does not have.
func appendFloat(b []byte, value any, wide float64) ([]byte, string) {
	switch {
	case math.IsNaN(wide):
		return append(b, `"NaN"`...), ""
	case math.IsInf(wide, 1):
		return append(b, `"Infinity"`...), ""
	case math.IsInf(wide, -1):
		return append(b, `"-Infinity"`...), ""
	}
	number, err := json.Marshal(value)
	if err != nil {
		return b, err.Error()
	}
	return append(b, number...), ""
}

// decimalValue writes whole numbers, divided by ten to the scale, with all digits.
func decimalValue(scale int) parquetAppend {
	return func(b []byte, v parquet.Value) ([]byte, string) {
		var whole big.Int
		switch v.Kind() {
		case parquet.Int32:
			whole.SetInt64(int64(v.Int32()))
		case parquet.Int64:
			whole.SetInt64(v.Int64())
		default: // two's complement, the highest byte first
			bytes := v.ByteArray()
			if len(bytes) == 0 {
				return b, "a value is empty"
			}
			if whole.SetBytes(bytes); bytes[0] >= 0x80 {
				whole.Sub(&whole, new(big.Int).Lsh(big.NewInt(1), uint(8*len(bytes))))
			}
		}
		if whole.Sign() < 0 {
			b = append(b, '-')
			whole.Neg(&whole)
		}
		digits := whole.String()
		if missing := scale + 1 - len(digits); missing > 0 {
			digits = strings.Repeat("0", missing) + digits
		}
		point := len(digits) - scale
		if b = append(b, digits[:point]...); scale > 0 {
			b = append(append(b, '.'), digits[point:]...)
		}
		return b, ""
	}
}

// Layouts of ISO 8601 without a zone: with as many digits of a second as it takes.
const (
	isoTime  = "15:04:05.999999999"
	isoLocal = "2006-01-02T" + isoTime
)

func appendTime(b []byte, t time.Time, layout string) ([]byte, string) {
	return append(t.UTC().AppendFormat(append(b, '"'), layout), '"'), ""
}

func appendDate(b []byte, v parquet.Value) ([]byte, string) {
	return appendTime(b, time.Unix(int64(v.Int32())*24*60*60, 0), time.DateOnly)
}

// timeValue writes times of day.
func timeValue(unit time.Duration) parquetAppend {
	return func(b []byte, v parquet.Value) ([]byte, string) {
		n := v.Int64()
		if v.Kind() == parquet.Int32 {
			n = int64(v.Int32())
		}
		if n < 0 || n >= int64(24*time.Hour/unit) {
			return b, fmt.Sprintf("%d is not a time of day", n)
		}
		return appendTime(b, time.Unix(0, n*int64(unit)), isoTime)
	}
}

// timestampValue writes instants, or local times without a zone.
func timestampValue(unit time.Duration, instants bool) parquetAppend {
	layout := isoLocal
	if instants {
		layout = time.RFC3339Nano
	}
	second := int64(time.Second / unit)
	return func(b []byte, v parquet.Value) ([]byte, string) {
		n := v.Int64()
		return appendTime(b, time.Unix(n/second, n%second*int64(unit)), layout)
	}
}

// appendInt96 writes the old form of a timestamp: nanoseconds of a day, and the day by Julian count. It has no zone.
func appendInt96(b []byte, v parquet.Value) ([]byte, string) {
	const epoch = 2440588 // 1970-01-01
	n := v.Int96()
	nanos := int64(n[1])<<32 | int64(n[0])
	return appendTime(b, time.Unix((int64(int32(n[2]))-epoch)*24*60*60, nanos), isoLocal)
}

func appendUUID(b []byte, v parquet.Value) ([]byte, string) {
	u := v.ByteArray()
	return fmt.Appendf(b, `"%x-%x-%x-%x-%x"`, u[:4], u[4:6], u[6:8], u[8:10], u[10:]), ""
}
