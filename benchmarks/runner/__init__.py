"""Methods and peers on a data set: what to compare, the figures that are kept, and the page that shows them."""
