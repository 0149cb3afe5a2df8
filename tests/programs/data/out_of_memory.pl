# A short load with printed results: a hash, strings that grow, a sort, a big buffer.
use strict;
use warnings;

my %table;
$table{$_ % 5003} .= "x" x ($_ % 23) for 1 .. 30000;
my $text = "";
$text .= "$_," for 1 .. 60000;
my @sorted = sort { length($table{$a}) <=> length($table{$b}) || $a <=> $b } keys %table;
my $buffer = "\0" x 20_000_000;
print scalar(@sorted), " $sorted[0] $sorted[-1] ", length($text), " ", length($buffer), "\n";
