// Names to demangle, and functions that the compiler inlines.
#include <functional>
#include <vector>

extern "C" void library_wait();

namespace shapes {

template <typename Number>
struct Sum {
    Number total = 0;

    __attribute__((noinline)) void add(const std::vector<Number>& numbers, const std::function<void(Number)>& seen) {
        for (Number number : numbers) {
            total += number;
            seen(number);
        }
    }
};

struct Shape {
    virtual ~Shape() = default;
    virtual double area(int sides) = 0;
};

namespace {

struct Square : Shape {
    __attribute__((noinline)) double area(int sides) override;
};

inline __attribute__((always_inline)) void inlined_leaf() {
    library_wait();
}

inline __attribute__((always_inline)) double inlined_middle(double side) {
    inlined_leaf();
    return side * side;
}

double Square::area(int sides) {
    Sum<double> sum;
    sum.add({double(sides)}, [](double number) { inlined_middle(number); });
    return sum.total;
}

}  // namespace

Shape* make() {
    return new Square;
}

}  // namespace shapes

int main() {
    shapes::Shape* shape = shapes::make();
    double area = shape->area(4);
    delete shape;
    return area > 100;
}
