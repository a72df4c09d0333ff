package report

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Panel is one diagram of a plot: metrics of a case over its sizes, on a logarithmic axis;
// the other one is logarithmic too where the values differ by more than spread.
type Panel struct {
	Title, X, Y string
	Metrics     []string
}

// The size of a panel.
const (
	panelWidth  = 11 * vg.Centimeter
	panelHeight = 8 * vg.Centimeter
)

// Plot draws the panels side by side, into base.png and base.svg.
func (c *Case) Plot(base string, panels []Panel) error {
	row := make([]*plot.Plot, len(panels))
	for i, panel := range panels {
		var err error
		if row[i], err = c.panel(panel); err != nil {
			return fmt.Errorf("plot %s: %w", panel.Title, err)
		}
	}
	width := panelWidth * vg.Length(len(panels))
	png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, panelHeight), vgimg.UseDPI(144))}
	svg := vgsvg.New(width, panelHeight)
	for path, canvas := range map[string]vg.CanvasWriterTo{base + ".png": png, base + ".svg": svg} {
		tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Points(12), PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(12)}
		aligned := plot.Align([][]*plot.Plot{row}, tiles, draw.New(canvas))
		for i, p := range row {
			p.Draw(aligned[0][i])
		}
		file, err := os.Create(path)
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		if _, err = canvas.WriteTo(file); err == nil {
			err = file.Close()
		}
		if err != nil {
			return fmt.Errorf("plot %s: %w", path, err)
		}
	}
	return nil
}

// palette tells the lines of a panel apart.
var palette = []color.Color{
	color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}, color.RGBA{R: 0xd6, G: 0x27, B: 0x28, A: 0xff},
	color.RGBA{R: 0x2c, G: 0xa0, B: 0x2c, A: 0xff}, color.RGBA{R: 0x94, G: 0x67, B: 0xbd, A: 0xff},
}

func (c *Case) panel(panel Panel) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = panel.Title, panel.X, panel.Y
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	n := 0
	for _, metric := range panel.Metrics {
		for _, line := range c.lines(metric) {
			l, points, err := plotter.NewLinePoints(line.points)
			if err != nil {
				return nil, err
			}
			l.Color, points.Color = palette[n%len(palette)], palette[n%len(palette)]
			points.Shape = draw.CircleGlyph{}
			p.Add(l, points)
			p.Legend.Add(line.name, l, points)
			n++
		}
	}
	if n == 0 {
		return nil, fmt.Errorf("%s has no figures of %v", c.Name, panel.Metrics)
	}
	// The legend stands above the lines.
	if least, most := p.Y.Min, p.Y.Max; most > spread*least {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{1, 2, 5}
		p.Y.Max = most * math.Pow(most/least, headroom)
	} else {
		p.Y.Min, p.Y.Max = 0, most*(1+headroom)
	}
	return p, nil
}

const (
	spread   = 4
	headroom = 0.35 // of an axis
)

// decades marks these multiples of each power of ten on a logarithmic axis.
type decades []float64

// Ticks implements plot.Ticker.
func (d decades) Ticks(from, to float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Pow10(int(math.Floor(math.Log10(from)))); power <= to; power *= 10 {
		for _, m := range d {
			if at := m * power; at >= from && at <= to {
				ticks = append(ticks, plot.Tick{Value: at, Label: number(at)})
			}
		}
	}
	return ticks
}

type line struct {
	name   string
	points plotter.XYs
}

// lines are the metric's medians over the sizes, a line a subject.
func (c *Case) lines(metric string) []line {
	var list []line
	for _, f := range c.Figures {
		if f.Metric != metric || f.At <= 0 || f.Median <= 0 {
			continue
		}
		i := slices.IndexFunc(list, func(l line) bool { return l.name == f.Subject+": "+metric })
		if i < 0 {
			i = len(list)
			list = append(list, line{name: f.Subject + ": " + metric})
		}
		list[i].points = append(list[i].points, plotter.XY{X: f.At, Y: f.Median})
	}
	return list
}
