# A load with printed results: hashes, strings, sorting, regular expressions, a forked child.
use strict;
use warnings;
my $scale = shift @ARGV;
my (%table, $seed);
$seed = 1;
sub next_random { $seed = ($seed * 1103515245 + 12345) % 2147483648; return $seed >> 8; }
for my $i (1 .. 200000 * $scale) {
    my $key = "k" . next_random() % 20000;
    if (exists $table{$key}) { delete $table{$key}; } else { $table{$key} = "x" x (next_random() % 150); }
}
my $total = 0;
$total += length $table{$_} for sort keys %table;
print scalar(keys %table), " keys, $total bytes\n";
my $text = join ",", map { "item$_:" . $_ * $_ } 1 .. 50000;
my $count = () = $text =~ /item(\d+):\d*7/g;
print "$count matches\n";
my @sorted = sort { $a->[1] <=> $b->[1] || $a->[0] <=> $b->[0] } map { [$_, $_ * 7919 % 10007] } 1 .. 50000;
print join(" ", map { $_->[0] } @sorted[0 .. 20]), "\n";
my $pid = open(my $child, "-|") // die "fork: $!";
if (!$pid) { my @list = map { "y" x $_ } 1 .. 2000; print length(join "", @list), " from the child\n"; exit 0; }
print <$child>;
close $child;
